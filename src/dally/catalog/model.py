"""A model to be trained: its layer table and what follows from it (gradients, skew, checkpoint, memory)."""

from __future__ import annotations

from enum import Enum

from dally.core.records import dataclass


class Precision(Enum):
    """Number format of the training arithmetic and of the gradients that are exchanged."""

    FP32 = "fp32"  # 32-bit throughout; GPUs that have TF32 use it
    MIXED = "mixed"  # 16-bit arithmetic on 32-bit master weights; gradients are exchanged in 32 bits
    BF16 = "bf16"  # 16-bit weights and gradients, 32-bit master copy in the optimiser

    @property
    def compute_width(self) -> int:
        """Bytes of an activation element."""
        return 4 if self is Precision.FP32 else 2

    @property
    def gradient_width(self) -> int:
        """Bytes of an exchanged gradient element."""
        return 2 if self is Precision.BF16 else 4


class Optimizer(Enum):
    """Optimisers by the state they keep."""

    SGD = "sgd"  # momentum: one 32-bit word per parameter
    ADAM = "adam"  # two moments: two 32-bit words per parameter

    @property
    def state_words(self) -> int:
        """32-bit words of state per parameter."""
        return 1 if self is Optimizer.SGD else 2


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of one layer in seconds, as measured on `gpu` with `batch` samples."""

    forward: float
    input_gradient: float
    weight_gradient: float
    gpu: str | None = None  # name in the catalog; None: not known, taken as it is on every GPU
    batch: int | None = None  # None: for the model's own batch

    @property
    def backward(self) -> float:
        return self.input_gradient + self.weight_gradient

    def times(self, factor: float) -> Measured:
        """All of it longer by a factor."""
        return Measured(
            self.forward * factor, self.input_gradient * factor, self.weight_gradient * factor, self.gpu, self.batch
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of a layer table, in forward order: a weight layer with the operations fused to it.

    FLOPs and elements are per sample. `gradient_bytes` is what one all-reduce of this layer carries: nothing
    for weights that are shared with another row or live on one GPU only.
    """

    name: str
    kind: str
    parameters: int
    gradient_bytes: int
    forward_flops: int = 0
    input_gradient_flops: int = 0
    weight_gradient_flops: int = 0
    tensors: tuple[int, ...] = ()  # elements of each parameter tensor; empty: one of `parameters`
    activation_elements: int = 0  # kept for the backward pass
    traffic_elements: int = 0  # activations read and written by the forward pass
    launches: int = 1  # kernels of the forward pass
    measured: Measured | None = None

    @property
    def backward_flops(self) -> int:
        return self.input_gradient_flops + self.weight_gradient_flops

    @property
    def forward_time(self) -> float | None:
        """Measured seconds of the forward pass, where there are any."""
        return self.measured.forward if self.measured else None

    @property
    def backward_time(self) -> float | None:
        """Measured seconds of the backward pass, where there are any."""
        return self.measured.backward if self.measured else None

    @property
    def largest_tensor(self) -> int:
        return max(self.tensors, default=self.parameters)


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a model that does not fit one GPU is normally spread: hints, not orders."""

    tensor: int = 1  # GPUs that share every layer
    pipeline: int = 1  # stages of consecutive layers
    sharded: bool = False  # weights, gradients and optimiser state sharded over the gang (ZeRO-3, FSDP)

    @property
    def model_parallel(self) -> int:
        """GPUs that together hold one copy of the model."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Model:
    """What the network model, the policies and the profiler know about one kind of training job."""

    name: str
    layers: tuple[Layer, ...]
    family: str  # arithmetic it is made of: decides the efficiency, see timing
    batch_size: int  # samples per GPU and step
    source: str  # of architecture and batch
    aliases: tuple[str, ...] = ()
    title: str = ""
    sample: str = "sample"  # what one sample is: an image, a sequence of 512 tokens …
    precision: Precision = Precision.FP32
    optimizer: Optimizer = Optimizer.SGD
    parallelism: Parallelism = Parallelism()
    recompute: bool = False  # activations are recomputed in the backward pass
    kept_activations: float = 1.0  # share of the activations that is kept, below 1 with recomputation
    utilization: float = 1.0  # share of the time its GPU is busy when it runs alone
    utilization_source: str = "estimated"
    measured_memory: float | None = None  # bytes on one GPU, where somebody measured it
    measured_update: float | None = None  # seconds of the optimiser step, where somebody measured it
    measured_on: str | None = None  # GPU those seconds were measured on
    buckets: tuple[int, ...] = ()  # bytes of gradient buckets as they were sent, where somebody measured them

    def __hash__(self) -> int:
        """Not over its hundreds of layers: what is remembered of a model is looked up by it for every new step."""
        return hash((self.name, len(self.layers), self.batch_size))

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def exchanged_parameters(self) -> int:
        """Parameters whose gradients are all-reduced: every copy of the model has them."""
        return sum(layer.parameters for layer in self.layers if layer.gradient_bytes)

    @property
    def local_parameters(self) -> int:
        """Parameters that exist once in the gang, spread over its GPUs (DLRM's tables)."""
        return self.parameters - self.exchanged_parameters

    @property
    def gradient_bytes(self) -> int:
        """Bytes that one all-reduce of all gradients carries."""
        return sum(layer.gradient_bytes for layer in self.layers)

    @property
    def largest_tensor_bytes(self) -> int:
        """Gradient bytes of the largest single tensor that is exchanged."""
        width = self.precision.gradient_width
        return max(
            (min(layer.gradient_bytes, layer.largest_tensor * width) for layer in self.layers), default=0
        )

    @property
    def skew(self) -> float:
        """Largest tensor over all gradients: Tiresias' profile of a model (NSDI'19, section 4.3)."""
        total = self.gradient_bytes
        return self.largest_tensor_bytes / total if total else 0.0

    @property
    def tensor_count(self) -> int:
        """Parameter tensors, biases and normalisation included."""
        return sum(len(layer.tensors) or bool(layer.parameters) for layer in self.layers)

    @property
    def forward_flops(self) -> int:
        """Operations of the forward pass for one sample."""
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def backward_flops(self) -> int:
        return sum(layer.backward_flops for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """Bytes of weights and optimiser state: per parameter 4 for the (master) weight and 4 per word of state.

        A pure 16-bit model keeps its 16-bit working weights beside the master copy (ZeRO, arXiv 1910.02054,
        section 3.1: 2 + 2 bytes of weights and gradients, 12 of optimiser state with Adam). Local parameters
        (model-parallel embedding tables) are updated row by row without any state.
        """
        words = 1 + self.optimizer.state_words
        working = 2 if self.precision is Precision.BF16 else 0
        return self.exchanged_parameters * (4 * words + working) + 4 * self.local_parameters

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint that training can go on from: 32-bit weights plus optimiser state.

        SGD with momentum 8 bytes per parameter, Adam 12. The 16-bit working copy is not saved; it follows
        from the master weights.
        """
        return self.exchanged_parameters * 4 * (1 + self.optimizer.state_words) + 4 * self.local_parameters

    def memory_bytes(self, batch: int | None = None, gpus: int = 1) -> float:
        """Estimated bytes on each of `gpus` GPUs: states, gradients, activations and a fixed gigabyte.

        States and gradients are divided by the gang for a sharded model and by tensor × pipeline degree
        otherwise; activations by the tensor and pipeline degree. The gigabyte stands for the CUDA context,
        cuDNN workspace and allocator slack (estimated). A measured figure for the default batch wins.
        """
        batch = self.batch_size if batch is None else batch
        if self.measured_memory is not None and batch == self.batch_size:
            return self.measured_memory
        width = self.precision.compute_width
        activations = sum(layer.activation_elements for layer in self.layers) * batch * width
        split = min(gpus, self.parallelism.model_parallel)
        local = 4 * self.local_parameters
        states = self.state_bytes - local + self.exchanged_parameters * self.precision.gradient_width
        shards = gpus if self.parallelism.sharded else split
        return states / shards + local / gpus + activations * self.kept_activations / split + 1e9
