"""Mixture of experts: a router, and experts whose rows are the tokens routed to them.

After Hugging Face's mixtral: all experts' matrices lie in two tensors, and each token visits
`num_experts_per_tok` of them. Tokens are assumed to be spread evenly.
"""

from dataclasses import dataclass

from autotune.job.model_shape import ModelShape
from autotune.predict.program.items import Item
from autotune.predict.program.layers import Dense, Layers, Saved

ExpertLayer = tuple[Dense, tuple[int, int], int]
"""Router, the two expert tensors, and the ranks that share the experts.

To DeepSpeed the block is a leaf (`DEFAULT_LEAF_MODULE_CLASSES` in leaf_module_config.py): at
stage 3 all its weights are gathered together, and its gradients reduced together at its end.
"""

_NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Their names in configs: mixtral's, qwen's, and deepseek's, whose shared experts do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes:
    """Experts of one layer."""

    num_experts: int
    per_token: int
    """Experts that a token visits."""
    hidden: int
    mlp: int

    @property
    def elements(self) -> int:
        """Elements of all experts' down matrices; gate and up have twice as many."""
        return self.num_experts * self.hidden * self.mlp


def expert_sizes(shape: ModelShape) -> ExpertSizes | None:
    """Read the experts from a Hugging Face config; None for a dense model."""
    config = shape.hf_config
    number = next((config[key] for key in _NUM_EXPERTS if config.get(key)), None)
    if not isinstance(number, int) or number < 2:
        return None
    return ExpertSizes(
        num_experts=number,
        per_token=int(config.get("num_experts_per_tok") or 2),
        hidden=shape.hidden_size,
        mlp=int(config.get("moe_intermediate_size") or shape.intermediate_size),
    )


def experts(
    layers: Layers,
    sizes: ExpertSizes,
    layer: ExpertLayer,
    saved: Saved,
    *,
    save: bool,
    again: bool = False,
) -> int | None:
    """Record router and experts; kept per visit: the token's row, gate and up, silu, product.

    The router's weights are fp32, so that the visits' outputs are weighted and put back into the
    tokens' order in fp32 (`grouped_mm_experts_forward` in transformers/integrations/moe.py).
    """
    recorder = layers.recorder
    router, weights, _ = layer
    recorder.fetch(*router.own, *weights)
    scores = layers.product(router)
    visits = sizes.per_token
    rows = layers.activation(visits * sizes.hidden)
    gate_up = layers.activation(2 * visits * sizes.mlp)
    silu = layers.activation(visits * sizes.mlp)
    product = layers.activation(visits * sizes.mlp)
    down = layers.activation(visits * sizes.hidden)
    kept = {"rows": rows, "gate_up": gate_up, "silu": silu, "product": product, "down": down}
    if again:
        saved.slots |= kept | {"scores": scores}
        return None
    weighted = layers.activation(visits * sizes.hidden, fp32=True)
    ordered = layers.activation(visits * sizes.hidden, fp32=True)
    recorder.free(weighted)
    total = layers.activation(sizes.hidden, fp32=True)
    output = layers.activation(sizes.hidden)
    recorder.free(ordered, total)
    recorder.release(*router.own, *weights)
    if save:
        saved.slots |= kept | {"scores": scores}
    else:
        recorder.free(scores, *kept.values())
    return output


def experts_backward(
    layers: Layers, sizes: ExpertSizes, layer: ExpertLayer, saved: Saved, *, leaf: bool
) -> int:
    """Record the experts' backward; the output's gradient stays with the residual.

    Args:
        layers: the recorder.
        sizes: of the experts.
        layer: its modules.
        saved: what forward kept.
        leaf: the engine takes the block's gradients together, at the end of its backward.
    """
    recorder = layers.recorder
    router, weights, parallel = layer
    visits = sizes.per_token
    waiting: list[tuple[int, int | None]] = []

    def accumulate(parameter: int, slot: int | None) -> None:
        if leaf:
            waiting.insert(0, (parameter, slot))
        else:
            layers.accumulate(parameter, slot)

    recorder.fetch(*router.own, *weights)
    recorder.workspace(1)
    of_down = _weighted_backward(layers, sizes, saved)
    slot = _expert_gradient(layers, weights[1], parallel)
    of_product = layers.activation_gradient(visits * sizes.mlp)
    recorder.free(of_down, saved.take("product"))
    accumulate(weights[1], slot)
    of_up = layers.activation_gradient(visits * sizes.mlp)
    of_silu = layers.activation_gradient(visits * sizes.mlp)
    recorder.free(of_product, saved.take("silu"))
    of_gate = layers.activation_gradient(visits * sizes.mlp)
    recorder.free(of_silu, saved.take("gate_up"))
    of_gate_up = layers.activation_gradient(2 * visits * sizes.mlp)
    recorder.free(of_gate, of_up)
    slot = _expert_gradient(layers, weights[0], parallel)
    of_rows = layers.activation_gradient(visits * sizes.hidden)
    recorder.free(of_gate_up, saved.take("rows"))
    accumulate(weights[0], slot)
    spread = layers.activation_gradient(sizes.hidden)
    result = layers.activation_gradient(sizes.hidden)
    recorder.free(spread, of_rows)
    of_scores = layers.activation_gradient(sizes.num_experts)
    slot = layers.weight_gradient(router.weight)
    by_router = layers.activation_gradient(sizes.hidden)
    recorder.free(of_scores, saved.take("scores"), saved.take("normal_mlp"))
    total = layers.activation_gradient(sizes.hidden)
    recorder.free(result, by_router)
    accumulate(router.weight, slot)
    for parameter, late in waiting:
        layers.accumulate(parameter, late)
    recorder.release(*router.own, *weights)
    return total


def _weighted_backward(layers: Layers, sizes: ExpertSizes, saved: Saved) -> int:
    """Record the backward of weighting and reordering; returns the down products' gradient."""
    recorder, width = layers.recorder, sizes.per_token * sizes.hidden
    narrow = layers.activation_gradient(sizes.hidden, fp32=True)
    wide = layers.activation_gradient(width, fp32=True)
    recorder.free(narrow)
    zeros = layers.activation_gradient(width, fp32=True)
    ordered = layers.activation_gradient(width, fp32=True)
    recorder.free(zeros, wide)
    of_weights = layers.activation_gradient(width, fp32=True)
    weighted = layers.activation_gradient(width, fp32=True)
    of_down = layers.activation_gradient(width)
    recorder.free(weighted, of_weights, ordered, saved.take("down"))
    return of_down


def _expert_gradient(layers: Layers, parameter: int, parallel: int) -> int | None:
    """Allocate the gradient of the experts that this rank holds."""
    known = layers.recorder.parameters[parameter]
    if not known.trainable:
        return None
    elements = -(-known.num_elements // parallel)
    return layers.recorder.allocate(layers.sizes.element_bytes * elements, Item.GRADIENTS)
