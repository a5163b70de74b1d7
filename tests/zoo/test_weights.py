"""Reading the authors' weights: what does not fit is named, all of it at once."""

import pytest
import torch

from zoo import ZooError
from zoo.weights import from_official


@pytest.fixture
def weights(official):
    return official("expansionnet_model").group("param/")


SIZES = {"n_heads": 4, "static_lengths": (2, 4, 3)}


def test_sizes_are_read_off_the_shapes(weights):
    model = from_official("expansionnet_v2", weights, **SIZES)
    assert (model.vocab_size, model.max_len, model.visual.dim) == (60, 20, 48)
    assert len(model.encoder_layers) == len(model.decoder_layers) == 2
    assert next(model.parameters()).dtype == torch.float64


def test_the_backbone_of_an_end_to_end_checkpoint_is_left_aside(weights):
    from_official("expansionnet_v2", {**weights, "swin_transf.norm.weight": torch.ones(3)}, **SIZES)


def test_every_misfit_is_named(weights):
    weights["decoders.0.norm_2.weight"] = torch.ones(5)
    weights["mystery.weight"] = torch.ones(1)
    del weights["enc_reduce_norm.bias"]
    with pytest.raises(ZooError) as caught:
        from_official("expansionnet_v2", weights, **SIZES)
    message = str(caught.value)
    assert "decoders.0.norm_2.weight: shape (5,), but expansionnet_v2 has (32,)" in message
    assert "mystery.weight: unknown" in message
    assert "encoder_output.norm.bias: not in" in message


def test_other_group_lengths_are_told_by_shape(weights):
    with pytest.raises(ZooError, match=r"query_exp_vectors.weight: shape \(9, 32\)") as caught:
        from_official("expansionnet_v2", weights, n_heads=4)
    assert "static_lengths" in caught.value.hint


def test_a_whole_checkpoint_instead_of_its_weights_is_told(weights):
    with pytest.raises(ZooError, match="not a state dict of ExpansionNet") as caught:
        from_official("expansionnet_v2", {"model_state_dict": weights})
    assert "model_state_dict" in caught.value.hint


def test_a_family_without_released_weights_is_told(weights):
    with pytest.raises(ZooError, match="no converter for released weights of 'blind'") as caught:
        from_official("blind", weights)
    assert "expansionnet_v2" in caught.value.hint
