"""Migration: gangs are brought together where it helps, servers emptied, and nothing goes in circles."""

from __future__ import annotations

from builders import Played, cluster, job, play, seeded_trace
from dally.core import plan as pl

APART = [job("x", 3, 100), job("y", 3, 2000), job("gang", 2, 2000, 1)]  # the gang gets one GPU of each server
FAR = "level-penalty[cluster=2]"


def moves(played: Played, job_id: str | None = None) -> list[tuple[float, str]]:
    return [(t, e.placement.text()) for t, e in played.of(pl.Migrate, job_id)]  # type: ignore[union-attr]


def test_a_gang_that_is_apart_is_brought_together_when_there_is_room() -> None:
    played = play(APART, cluster(2, 4), "gandiva[packing=false]", network=FAR)
    assert played.of(pl.Start, "gang")[0][1].placement.text() == "0:8,1:8"  # type: ignore[union-attr]
    assert moves(played, "gang") == [(100, "0:3")]
    assert (played.end("gang") or 0) < (play(APART, cluster(2, 4), "gandiva[migration=false]", network=FAR)
                                        .end("gang") or 0)  # fmt: skip


def test_a_gang_is_moved_only_after_it_was_measured_where_it_is() -> None:
    played = play(APART, cluster(2, 4), "gandiva[packing=false,minibatches=500]", network=FAR)
    (when, _), *_ = moves(played, "gang")
    assert when >= 1 + 500 * 2  # mini-batches take two seconds there


def test_a_move_that_does_not_help_is_not_repeated_for_the_gang_or_its_like() -> None:
    specs = []
    for i in range(6):  # again and again a gang of the same kind comes to lie apart, and then there is room
        specs += [job(f"x{i}", 3, 100, 1000 * i), job(f"y{i}", 3, 900, 1000 * i),
                  job(f"g{i}", 2, 900, 1000 * i + 1, model="resnet50")]  # fmt: skip
    played = play(specs, cluster(2, 4), "gandiva[packing=false,slicing=false]", network="ideal")
    assert all(len(e.placement.slices) == 2 for i in range(6) for _, e in played.of(pl.Start, f"g{i}"))  # type: ignore[union-attr]
    assert [len(moves(played, f"g{i}")) for i in range(6)] == [1, 0, 0, 0, 0, 0]
    near = play(specs, cluster(2, 4), "gandiva[packing=false,slicing=false]", network=FAR)
    assert [len(moves(near, f"g{i}")) for i in range(6)] == [1] * 6  # where it helps it is done each time


def test_a_server_that_is_nearly_empty_is_emptied_into_a_fuller_one_for_a_gang_that_is_apart() -> None:
    ends = {3: 100, 5: 100, 6: 100, 7: 100, 2: 300, 9: 300, 10: 300, 11: 300}
    filler = [job(f"f{i}", 1, ends.get(i, 3000), 0.001 * i) for i in range(12)]
    gang = job("gang", 4, 2000, 150)  # gets three GPUs of server 1 and one of server 0
    played = play([*filler, gang], cluster(3, 4), "gandiva[packing=false]", network=FAR)
    assert moves(played, "f8") == [(300.011, "0:4")]  # server 2 had three of four free, server 0 one
    assert moves(played, "gang") == [(300.011, "2:f")]
    kept = play([*filler, gang], cluster(3, 4), "gandiva[packing=false,defragment=1]", network=FAR)
    assert not moves(kept, "f8") and all(t >= 3000 for t, _ in moves(kept, "gang"))


def test_nothing_is_moved_without_migration_and_nothing_shared_in_the_variant_dally_was_compared_with() -> None:
    made = seeded_trace(5, jobs=60, span=300)
    still = play(made, cluster(2, 2, 4), "gandiva[migration=false,packing=false]", network="level-penalty")
    assert not still.of(pl.Migrate)
    lean = play(made, cluster(2, 2, 4), "gandiva[variant=dally-paper]", network="level-penalty")
    assert not lean.of(pl.Reshare) and not lean.of(pl.Resize)
    held: dict[str, str] = {}
    for _, entry in lean.entries:
        if isinstance(entry, (pl.Start, pl.Migrate)):
            held[entry.job] = entry.placement.text()
            assert list(held.values()).count(held[entry.job]) == 1, "two jobs on the same GPUs"
        elif type(entry).__name__ in ("Finished", "Interrupted"):
            held.pop(entry.job)  # type: ignore[union-attr]


def test_moves_are_few_when_nothing_changes_any_more() -> None:
    jobs = [job(f"j{i}", 1 + i % 3, 20_000, 0.1 * i) for i in range(20)]
    played = play(jobs, cluster(2, 2, 4), "gandiva[packing=false]", network="level-penalty")
    first_end = min(v or 0 for v in played.jcts().values())
    assert not [t for t, _ in moves(played) if 5000 < t < first_end], "nobody came or went, and jobs are moved"
