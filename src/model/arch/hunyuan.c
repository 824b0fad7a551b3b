// Hunyuan's dense models (Hy-MT2): Llama with q and k normalized per head, after RoPE.
#include "model/arch.h"

static const char *const gguf_names[] = {"hunyuan-dense", NULL};
static const char *const model_types[] = {"hunyuan_v1_dense", NULL};

static const st_fact facts[] = {
    {NULL, "rope:alpha", ST_FACT_USED, "null", "the base of the class's dynamic scaling, for any length"},
    {NULL, "use_qk_norm", ST_FACT_AT, "true", "HunYuanDenseV1Attention always has the norms"},
    {NULL, "num_experts", ST_FACT_AT, "0|1", "one is the dense layer"},
    {NULL, "use_rotary_pos_emb", ST_FACT_AT, "true", "all layers have RoPE"},
    {NULL, "use_cla add_classification_head position_embedding_xdrope use_mixed_mlp_moe", ST_FACT_AT, "0|false|",
     "keys and values shared by layers; a classifier; RoPE of images; a dense branch beside experts"},
    {NULL, "class_num dense_list pool_type", ST_FACT_NEUTRAL, "",
     "used only with add_classification_head, which is refused"},
    {NULL,
     "anyres_pooling_size anyres_vit_max_image_size anyres_vit_two_views im_end_id im_newline_id im_start_id "
     "mask_init_id num_media_embeds pad_id skip_cls_token text_end_id text_start_id video_end_id video_start_id "
     "vit_input_resolution vit_mapping_type vit_norm_type vit_patch vit_path vit_token vit_type",
     ST_FACT_NEUTRAL, "", "images, and ids of tokens around them"},
    {NULL, "cla_share_factor", ST_FACT_NEUTRAL, "", "used only with use_cla, which is refused"},
    {NULL, "org_vocab_size", ST_FACT_NEUTRAL, "", "the vocabulary without its padding"},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND_ATTENTION,
    {.role = ST_ATTN_Q_NORM, .hf = "model.layers.%u.self_attn.query_layernorm"},
    {.role = ST_ATTN_K_NORM, .hf = "model.layers.%u.self_attn.key_layernorm"},
    ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,
    ST_BIND_END,
};

const st_spec st_spec_hunyuan = {
    .name = "hunyuan-dense",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .hf_class = "HunYuanDenseV1ForCausalLM",
    .facts = facts,
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 290943, .norm_eps = 1e-5f, .norm_after_rope = true,
                 .rope = {.theta = 10000}},
    .bindings = bindings,
};
