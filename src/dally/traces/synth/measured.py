"""Published and measured figures the synthesisers follow; each table says where it comes from.

Philly: measured on the flat Philly CSV, 82,247 jobs of 109 days (Jeon et al., ATC'19).
Helios: durations and demands read off the vector figures that accompany Hu et al., NSDI'24 (their curves for
Helios' 1,580,464 GPU jobs), means and endings from the cluster summary released with Hu et al., SC'21.
PAI: the same figures' curves for Alibaba PAI (Weng et al., NSDI'22); hours from the notebook of that trace.
Dally: measured on the two job lists Dally was evaluated on (500 and 411 SenseTime Helios jobs).
"""

from __future__ import annotations

from dally.traces.synth.chance import Quantiles, Shares

_P = (0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
      0.95, 0.98, 0.99, 0.999, 1)  # fmt: skip


def _at_p(*values: float) -> Quantiles:
    return Quantiles(tuple(zip(_P, values, strict=True)))


# ── Philly ──────────────────────────────────────────────────────────────────────────────────────────────────────

PHILLY_DEMAND = Shares(
    (1, 2, 4, 8, 12, 16, 24, 32, 64, 128), (76627, 1818, 1870, 1643, 7, 199, 7, 67, 6, 3)
)
# Run time by demand: from this many GPUs up.
PHILLY_DURATION = {
    1: _at_p(1, 30, 52, 62, 69, 76, 122, 215, 385, 600, 855, 1117, 1446, 1728, 2054, 2464, 2716, 3754, 5342, 8512,
             19137, 68259, 135404, 868927, 3256045),
    2: _at_p(2, 5, 9, 11, 13, 15, 16, 17, 18, 19, 20, 21, 23, 25, 28, 33, 76, 150, 22366, 73625, 197392, 343945,
             526030, 1521148, 2582803),
    4: _at_p(3, 35, 75, 136, 179, 400, 772, 1695, 4456, 7457, 13082, 17388, 26253, 36253, 56900, 78636, 89422,
             106275, 151663, 184426, 274339, 536225, 908661, 2641566, 2750674),
    8: _at_p(1, 33, 125, 216, 463, 783, 1871, 3940, 7268, 12390, 16653, 23683, 36588, 64753, 105906, 140815, 173288,
             203140, 242280, 352409, 525631, 807057, 1066894, 2658784, 4628226),
    12: _at_p(1, 2, 35, 69, 210, 345, 566, 880, 1571, 3165, 8846, 21137, 45047, 53862, 58735, 73728, 104218, 159985,
              181596, 252560, 446126, 622377, 1152387, 1710643, 1710643.5),
}  # fmt: skip
# Gaps between submissions over their mean of 114.4 s, after the daily pattern is taken out. The longest per
# mille ends at 60 means: beyond it lie outages of the traced cluster, up to 2.9 days.
PHILLY_GAP = Quantiles(
    tuple(zip((0, 0.08, *_P[3:-1], 1),
              (0, 0, 0.0076, 0.0101, 0.0178, 0.0227, 0.0293, 0.038, 0.0481, 0.0589, 0.0771, 0.0985, 0.128, 0.175,
               0.249, 0.42, 0.877, 1.72, 3.11, 4.56, 5.82, 6.7, 20.6, 60), strict=True)),
    log=False,
)  # fmt: skip
PHILLY_MEAN_GAP = 114.4
PHILLY_HOURS = (1.274, 0.985, 1.119, 1.103, 0.7, 1.153, 1.673, 2.089, 1.109, 1.006, 1.024, 0.869, 0.749, 0.705,
                0.638, 0.649, 0.882, 0.668, 0.801, 0.728, 1.016, 0.917, 1.134, 1.01)  # fmt: skip
# Virtual clusters by jobs, of one GPU and of several; the four smallest (18 jobs together) are left out.
PHILLY_TENANTS = ("6214e9", "11cb48", "6c71a0", "b436b2", "103959", "ee9e8c", "0e4a51", "ed69ec", "7f04ca",
                  "2869ce", "e13805")  # fmt: skip
PHILLY_TENANTS_ONE = (40841, 14607, 9054, 7237, 1571, 597, 1090, 1137, 204, 64, 215)
PHILLY_TENANTS_MULTI = (385, 1484, 899, 186, 363, 914, 345, 0, 519, 358, 159)
# Passed, killed, unsuccessful: ATC'19, table 6.
PHILLY_ENDINGS = (0.693, 0.135, 0.172)

# ── Helios ──────────────────────────────────────────────────────────────────────────────────────────────────────

_POWERS = tuple(float(2**k) for k in range(22))  # the figures sample their curves at powers of two
HELIOS_DURATION = Quantiles(
    tuple(zip((0.04, 0.0493, 0.0635, 0.077, 0.1072, 0.1615, 0.2488, 0.3781, 0.5657, 0.6758, 0.7525, 0.841, 0.8753,
               0.9075, 0.9436, 0.9626, 0.9777, 0.989, 0.9955, 0.9986, 0.9996, 1.0), _POWERS, strict=True))
)  # fmt: skip
HELIOS_DEMAND = Shares(
    (1, 2, 3, 4, 6, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 160),
    (0.7219, 0.0256, 0.0009, 0.0563, 0.0021, 0.1401, 0.0303, 0.0036, 0.0127, 0.0010, 0.0010, 0.0006, 0.0012, 0.0008,
     0.0005, 0.0009, 0.0005),
)  # fmt: skip
HELIOS_LINK = 0.22  # fitted: 49,400 GPU-seconds per job, the mean of the SC'21 cluster summary
HELIOS_MEAN_GAP = 183 * 86400 / 1_580_464  # April to September 2020, four clusters
# GPU jobs by hour of the day in Venus, from the cluster's throughput log (125,214 GPU jobs).
HELIOS_HOURS = (0.9, 0.66, 0.6, 0.38, 0.27, 0.21, 0.19, 0.22, 0.37, 0.8, 1.29, 1.47, 1.16, 1.3, 1.56, 1.66, 1.73,
                1.73, 1.28, 1.31, 1.34, 1.36, 1.15, 1.04)  # fmt: skip
HELIOS_ENDINGS = (0.624, 0.221, 0.155)  # completed, cancelled, failed, of GPU jobs: SC'21 cluster summary

# ── PAI ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PAI_DURATION = Quantiles(
    tuple(zip((0.0008, 0.0011, 0.0043, 0.0299, 0.1187, 0.2106, 0.2895, 0.3962, 0.509, 0.6079, 0.6984, 0.7851, 0.8712,
               0.9319, 0.9705, 0.9903, 0.9969, 0.9995, 1.0), (1.0, *_POWERS[2:20]), strict=True))
)  # fmt: skip
PAI_DEMAND = Shares((1, 2, 3, 4, 5, 8), (0.9707, 0.0158, 0.0011, 0.0035, 0.0040, 0.0049))
PAI_LINK = 0.36  # fitted: tasks of at most one GPU take 68 % of the GPU time
PAI_MEAN_GAP = 3600 / 770  # about 770 tasks an hour in the mean of the notebook's hourly medians
PAI_HOURS = (1080, 740, 540, 450, 560, 550, 600, 730, 600, 710, 1090, 1120, 770, 760, 960, 1010, 980, 1080, 800, 800,
             770, 680, 600, 520)  # fmt: skip
# Percent of a GPU asked for by tasks of at most one: the notebook's bars for under 25 %, 25 to 50 %, 50 to 100 % and
# one GPU. Each bar stands here for one value, its lower edge (10 % for the first).
PAI_PERCENT = Shares((10, 25, 50, 100), (0.148, 0.266, 0.132, 0.428))

# ── Dally ───────────────────────────────────────────────────────────────────────────────────────────────────────

DALLY_BATCH_DEMAND = Shares((1, 2, 4, 8, 16, 32, 40, 48, 56), (270, 13, 52, 109, 42, 11, 1, 1, 1))
DALLY_WEEK_DEMAND = Shares((2, 3, 4, 8, 16, 32, 40, 48, 56), (41, 1, 96, 190, 56, 23, 2, 1, 1))
DALLY_MEAN_GAP = 1453.2  # of the Poisson week


def _two_humps(short: float, low: tuple[float, ...], high: tuple[float, ...]) -> Quantiles:
    """Dally's durations have nothing between 3 and 10 hours: a hump of `short` parts, and the rest above the gap."""
    low_p = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1)
    high_p = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1)
    points = [(short * p, v) for p, v in zip(low_p, low, strict=True)]
    points += [(short + 1e-9 + (1 - short - 1e-9) * p, v) for p, v in zip(high_p, high, strict=True)]
    return Quantiles(tuple(points))


DALLY_SHORT = 20_000.0  # seconds: between the humps
DALLY_BATCH_ONE = _two_humps(
    93 / 270, (7272, 7478, 7629, 8082, 9088, 10099, 10384, 10494, 10738),
    (38603, 39966, 43334, 47291, 56155, 73458, 95082, 128577, 171056, 185596, 217212, 253377, 319710, 761516),
)  # fmt: skip
DALLY_BATCH_MULTI = _two_humps(
    34 / 230, (7218, 7251, 7315, 7638, 8417, 9274, 10382, 10631, 10711),
    (36156, 38205, 40064, 42932, 52779, 59662, 73055, 93356, 124423, 167244, 238745, 364754, 494806, 1165582),
)  # fmt: skip
DALLY_WEEK_MULTI = _two_humps(
    37 / 411, (7218, 7256, 7321, 7639, 8584, 9559, 10271, 10621, 10711),
    (36156, 38254, 40370, 44684, 53383, 64674, 81840, 102871, 138728, 168979, 250877, 331331, 617767, 1165582),
)  # fmt: skip
DALLY_MODELS = ("VGG11", "AlexNet", "MobileNetV3", "ResNet18", "ResNet50", "BERT")
DALLY_STEP_TIME = (0.00028115, 0.00122829, 0.00076658, 0.00056692, 0.00149103, 0.00833952)  # medians, s on one GPU
DALLY_BATCH_MODELS = (34, 53, 125, 38, 125, 125)  # jobs per model in the batch of 500
# Jobs per model, by length and by one GPU or several.
DALLY_SHORT_ONE = (30, 27, 1, 35, 0, 0)
DALLY_SHORT_MULTI = (4, 29, 1, 3, 0, 0)
DALLY_LONG_ONE = (0, 0, 16, 0, 67, 94)
DALLY_BATCH_LONG_MULTI = (0, 0, 107, 0, 58, 31)
DALLY_WEEK_LONG_MULTI = (0, 0, 124, 0, 125, 125)

# ── Gavel (OSDI'20 and the released generator) ──────────────────────────────────────────────────────────────────

GAVEL_DEMAND = Shares((1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05))
GAVEL_SHORT = 0.8  # share of jobs of 10^U[1.5, 3] minutes; the others run 10^U[3, 4]
GAVEL_MEAN_GAP = 1000.0  # seconds; the paper sweeps the rate, so this is only a start for `load`
GAVEL_MANY = (
    *(f"ResNet-18 (batch size {n})" for n in (16, 32, 64, 128, 256)),
    *(f"ResNet-50 (batch size {n})" for n in (16, 32, 64, 128)),
    *(f"Transformer (batch size {n})" for n in (16, 32, 64, 128, 256)),
    *(f"LM (batch size {n})" for n in (5, 10, 20, 40, 80)),
)
# Not distributed: drawn for jobs of one GPU only.
GAVEL_ONE_ONLY = (*(f"Recommendation (batch size {n})" for n in (512, 1024, 2048, 4096, 8192)), "A3C", "CycleGAN")
