/* Arguments that fit each other, of every public function: test_api.c makes one of them wrong, fuzz_api.c draws them half of
 * the time.  A tensor is written as its dtype and shape, "f32:2,3"; "!f32:2,3" requires grad. */
/* Arguments that are not here are in `usual`; those that are not there either are a tensor f32 [2, 3], a number 1, a
 * bool false. */
static const struct {
    const char *function, *arguments;
} recipes[] = {
    {"tg_item", "t=f32:1"},
    {"tg_item_i64", "t=i64:1"},
    {"tg_data_f64", "t=f64:2,3"},
    {"tg_data_i64", "t=i64:2,3"},
    {"tg_hook", "t=!f32:2,3"},
    {"tg_hook_post_accumulate", "t=!f32:2,3"},
    {"tg_unhook", "t=!f32:2,3"},
    {"tg_retain_grad", "t=!f32:2,3"},
    {"tg_set_grad", "t=!f32:2,3"},
    {"tg_gradients", "flags=4"}, /* TG_ALLOW_UNUSED: the outputs do not depend on the inputs */
    {"tg_gradcheck", "inputs=!f64:2"},
    {"tg_gradgradcheck", "inputs=!f64:2"},
    {"tg_gradcheck_ex", "inputs=!f64:2"},
    {"tg_gradgradcheck_ex", "inputs=!f64:2"},
    {"tg_module_export_c", "name=net"},
    {"tg_view", "shape=3,2"},
    {"tg_reshape", "shape=3,2"},
    {"tg_permute", "dims=1,0"},
    {"tg_matmul", "b=f32:3,2"},
    {"tg_mm", "b=f32:3,2"},
    {"tg_bmm", "a=f32:2,2,3 b=f32:2,3,2"},
    {"tg_mv", "b=f32:3"},
    {"tg_dot", "a=f32:3 b=f32:3"},
    {"tg_outer", "a=f32:3 b=f32:2"},
    {"tg_linear", "weight=f32:4,3 bias=f32:4"},
    {"tg_linear_gelu", "weight=f32:4,3 bias=f32:4"},
    {"tg_addmm", "c=f32:2,2 b=f32:3,2"},
    {"tg_index_select", "index=i64:2"},
    {"tg_index_add", "index=i64:2"},
    {"tg_index_put", "values=f32:"},
    {"tg_index_put_", "values=f32:"},
    {"tg_embedding", "weight=f32:4,3"},
    {"tg_layer_norm", "weight=f32:3 bias=f32:3"},
    {"tg_rms_norm", "weight=f32:3"},
    {"tg_add_layer_norm", "weight=f32:3 bias=f32:3"},
    {"tg_add_rms_norm", "weight=f32:3"},
    {"tg_batch_norm", "running_mean=f32:3 running_var=f32:3 weight=f32:3 bias=f32:3"},
    {"tg_instance_norm", "x=f32:2,3,4 running_mean=f32:3 running_var=f32:3 weight=f32:3 bias=f32:3"},
    {"tg_group_norm", "weight=f32:3 bias=f32:3"},
    {"tg_conv1d", "x=f32:2,3,4 weight=f32:2,3,2 bias=f32:2"},
    {"tg_conv2d", "x=f32:2,3,4,4 weight=f32:2,3,2,2 bias=f32:2"},
    {"tg_conv3d", "x=f32:2,3,4,4,4 weight=f32:2,3,2,2,2 bias=f32:2"},
    {"tg_conv_transpose1d", "x=f32:2,3,4 weight=f32:3,2,2 bias=f32:2"},
    {"tg_conv_transpose2d", "x=f32:2,3,4,4 weight=f32:3,2,2,2 bias=f32:2"},
    {"tg_conv_transpose3d", "x=f32:2,3,4,4,4 weight=f32:3,2,2,2,2 bias=f32:2"},
    {"tg_max_pool1d", "x=f32:2,3,5"},
    {"tg_max_pool1d_ex", "x=f32:2,3,5"},
    {"tg_max_pool2d", "x=f32:2,3,5,4"},
    {"tg_max_pool2d_ex", "x=f32:2,3,5,4"},
    {"tg_avg_pool1d", "x=f32:2,3,5"},
    {"tg_avg_pool1d_ex", "x=f32:2,3,5"},
    {"tg_avg_pool2d", "x=f32:2,3,5,4"},
    {"tg_avg_pool2d_ex", "x=f32:2,3,5,4 divisor=0"},
    {"tg_max_pool3d", "x=f32:2,3,3,4,3"},
    {"tg_max_pool3d_ex", "x=f32:2,3,3,4,3"},
    {"tg_avg_pool3d", "x=f32:2,3,3,4,3"},
    {"tg_avg_pool3d_ex", "x=f32:2,3,3,4,3 divisor=3"},
    {"tg_lp_pool1d", "x=f32:2,3,5 p=2"},
    {"tg_lp_pool2d", "x=f32:2,3,5,4 p=2"},
    {"tg_lp_pool3d", "x=f32:2,3,3,4,3 p=3"},
    {"tg_max_unpool1d", "x=f32:2,3,2 indices=i64:2,3,2 padding=0 output=3"},
    {"tg_max_unpool2d", "x=f32:2,3,2,2 indices=i64:2,3,2,2 padding=0 output=3,3"},
    {"tg_max_unpool3d", "x=f32:2,1,2,1,2 indices=i64:2,1,2,1,2 padding=0 output=3,2,3"},
    {"tg_adaptive_avg_pool3d", "x=f32:2,3,3,4,3"},
    {"tg_adaptive_max_pool3d", "x=f32:2,3,3,4,3"},
    {"tg_adaptive_max_pool3d_ex", "x=f32:2,3,3,4,3"},
    {"tg_adaptive_avg_pool1d", "x=f32:2,3,5"},
    {"tg_adaptive_avg_pool2d", "x=f32:2,3,5,4"},
    {"tg_adaptive_max_pool1d", "x=f32:2,3,5"},
    {"tg_adaptive_max_pool1d_ex", "x=f32:2,3,5"},
    {"tg_adaptive_max_pool2d", "x=f32:2,3,5,4"},
    {"tg_adaptive_max_pool2d_ex", "x=f32:2,3,5,4"},
    {"tg_grid_sample", "x=f32:2,3,5,4 grid=f32:2,3,2,2 mode=bilinear padding_mode=border"},
    {"tg_affine_grid", "theta=f32:1,2,3 shape=1,3,2,4"},
    {"tg_interpolate", "x=f32:2,3,5 size=4 mode=linear"},
    {"tg_nn_upsample", "size=4 scale=0 mode=nearest"},
    {"tg_scaled_dot_product_attention", "k=f32:2,3 mask=bool:2,2 dropout_p=0"},
    {"tg_scaled_dot_product_attention_ex",
     "q=f32:4,2,3 k=f32:2,2,3 v=f32:2,2,3 mask=bool:2,2 dropout_p=0 is_causal=1 enable_gqa=1 window=2"},
    {"tg_rope", "x=f32:2,4 cos=f32:2,2 sin=f32:2,2"},
    {"tg_repetition_penalty", "ids=i64:2,1"},
    {"tg_cross_entropy_ex", "weight=f32:3"},
    {"tg_nll_loss", "weight=f32:3"},
    {"tg_where", "cond=bool:2,3"},
    {"tg_multinomial", "n=1"},
    {"tg_index_add_", "index=i64:2"},
    {"tg_meshgrid", "tensors=f32:2"},
    {"tg_bincount", "ids=i64:2 weights=f32:2 minlength=0"},
    {"tg_repeat_interleave", "repeats=2"},
    {"tg_cdist", "b=f32:4,3"},
    {"tg_prelu", "weight=f32:3"},
    {"tg_uniform_", "low=0 high=1"},
    {"tg_trunc_normal_", "a=-1 b=1"},
    {"tg_kaiming_uniform_", "mode=fan_in nonlinearity=relu"},
    {"tg_kaiming_normal_", "mode=fan_out nonlinearity=tanh"},
    {"tg_div_rounded", "rounding_mode=floor"},
    {"tg_local_response_norm", "x=f32:2,3,4 size=2"},
    {"tg_margin_ranking_loss", "margin=0"},
    {"tg_cosine_embedding_loss", "target=f32:2 margin=0"},
    {"tg_multilabel_margin_loss", "target=i64:2,3"},
    {"tg_multi_margin_loss", "target=i64:2 p=1 weight=f32:3"},
    {"tg_rrelu", "lower=0 upper=1"},
    {"tg_nn_rrelu", "lower=0 upper=1"},
    {"tg_nn_upsample_ex", "size=4 scale=0 mode=area"},
    {"tg_nn_lp_pool1d", "p=2"},
    {"tg_nn_lp_pool2d", "p=2"},
    {"tg_nn_lp_pool3d", "p=2"},
    {"tg_nn_unfold", "padding=0"},
    {"tg_nn_fold", "size=3 padding=0"},
    {"tg_unflatten", "dim=1 sizes=3,1"},
    {"tg_movedim_dims", "sources=0 destinations=1"},
    {"tg_squeeze_dims", "dims=0"},
    {"tg_split_sizes", "sizes=1,1"},
    {"tg_rot90", "dims=0,1"},
    {"tg_meshgrid_xy", "tensors=f32:2"},
    {"tg_pixel_shuffle", "x=f32:1,4,2,2 r=2"},
    {"tg_pixel_unshuffle", "x=f32:1,4,2,2 r=2"},
    {"tg_channel_shuffle", "x=f32:2,4,3 groups=2"},
    {"tg_tril_indices", "rows=2 cols=2"},
    {"tg_triu_indices", "rows=2 cols=2"},
    {"tg_addmv", "c=f32:2 b=f32:3"},
    {"tg_baddbmm", "c=f32:2,2 a=f32:2,2,3 b=f32:2,3,2"},
    {"tg_addbmm", "c=f32:2,2 a=f32:2,2,3 b=f32:2,3,2"},
    {"tg_tensordot", "dims_a=1 dims_b=1"},
    {"tg_cross", "dim=1"},
    {"tg_bilinear", "weight=f32:4,3,3 bias=f32:4"},
    {"tg_index_fill", "index=i64:2"},
    {"tg_index_copy", "index=i64:2"},
    {"tg_index_copy_", "index=i64:2"},
    {"tg_masked_scatter", "source=f32:6"},
    {"tg_embedding_bag", "weight=f32:4,3 ids=i64:2 offsets=i64:1 mode=sum per_sample_weights=f32:2 padding_idx=-1"},
    {"tg_pad_mode", "mode=reflect"},
    {"tg_tensor_split", "sections=2"},
    {"tg_tensor_split_at", "at=1"},
    {"tg_hsplit", "t=f32:2,4 sections=2"},
    {"tg_vsplit", "sections=2"},
    {"tg_dsplit", "t=f32:2,2,4 sections=2"},
    {"tg_block_diag", "tensors=f32:2,3"},
    {"tg_cartesian_prod", "tensors=f32:2"},
    {"tg_combinations", "t=f32:3 r=2"},
    {"tg_diag_embed", "dim1=1"},
    {"tg_diagonal_scatter", "src=f32:2 dim1=1"},
    {"tg_select_scatter", "src=f32:3 index=0"},
    {"tg_slice_scatter", "src=f32:1,3 start=0 end=1 step=1"},
    {"tg_vander", "t=f32:3"},
    {"tg_logspace", "a=0 b=2 n=3 base=10"},
    {"tg_cov", "fweights=i64:3=1 aweights=f32:3"},
    {"tg_renorm", "p=2 max_norm=1"},
    {"tg_diff", "prepend=f32:1,3 append=f32:1,3"},
    {"tg_trapezoid", "x=f32:2"},
    {"tg_cumulative_trapezoid", "x=f32:2"},
    {"tg_put", "index=i64:2 source=f32:2"},
    {"tg_quantile", "q=f32:2 interpolation=linear"},
    {"tg_nanquantile", "q=f32:2 interpolation=nearest"},
    {"tg_searchsorted", "sorted=f32:3 sorter=i64:3"},
    {"tg_bucketize", "boundaries=f32:3"},
    {"tg_isin", "tests=f32:4"},
    {"tg_histc", "bins=4 min=0 max=1"},
    {"tg_histogram", "edges=f32:3 weight=f32:2,3"},
    {"tg_scatter_reduce", "reduce=amax"},
    {"tg_index_reduce", "index=i64:2 reduce=prod"},
    {"tg_repeat_interleave_tensor", "repeats=i64:2"},
    {"tg_linalg_inv", "A=f32:1,1"},
    {"tg_linalg_solve", "A=f32:1,1 B=f32:1,3 left=1"},
    {"tg_linalg_solve_triangular", "A=f32:2,2 left=1"},
    {"tg_triangular_solve", "A=f32:2,2"},
    {"tg_linalg_det", "A=f32:2,2"},
    {"tg_linalg_slogdet", "A=f32:2,2"},
    {"tg_linalg_lu_solve", "LU=f32:0,0 pivots=i32:0 B=f32:0,2 left=1"},
    {"tg_linalg_cholesky", "A=f32:1,1"},
    {"tg_cholesky_solve", "L=f32:2,2"},
    {"tg_cholesky_inverse", "L=f32:2,2"},
    {"tg_linalg_qr", "mode=reduced"},
    {"tg_linalg_householder_product", "A=f32:3,2 tau=f32:2"},
    {"tg_linalg_eigh", "A=f32:2,2 uplo=L"},
    {"tg_linalg_eigvalsh", "A=f32:2,2 uplo=U"},
    {"tg_linalg_pinv", "atol=-1 rtol=-1"},
    {"tg_linalg_matrix_rank", "atol=-1 rtol=-1"},
    {"tg_linalg_lstsq", "rcond=-1"},
    {"tg_linalg_matrix_norm", "ord=nuc dims=0,1"},
    {"tg_linalg_cond", "p=2"},
    {"tg_linalg_matrix_power", "A=f32:2,2 n=3"},
    {"tg_linalg_matrix_exp", "A=f32:2,2"},
    {"tg_linalg_multi_dot", "tensors=f32:2,2"},
    {"tg_bitwise_and", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_and_", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_or", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_or_", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_xor", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_xor_", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_left_shift", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_left_shift_", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_right_shift", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_right_shift_", "a=i64:2,3 b=i64:2,3"},
    {"tg_bitwise_not", "x=i64:2,3"},
    {"tg_bitwise_not_", "x=i64:2,3"},
    {"tg_gcd", "a=i64:2,3 b=i64:2,3"},
    {"tg_lcm", "a=i64:2,3 b=i64:2,3"},
    {"tg_mvlgamma", "p=2"},
    {"tg_im2col", "x=f32:1,2,3,3 padding=0"},
    {"tg_col2im", "columns=f32:1,8,4 size=3,3 padding=0"},
    {"tg_interpolate_ex", "x=f32:2,3,5 size=4 scale=0 mode=linear"},
    {"tg_sgd", "params=!f32:2,3"},
    {"tg_adam", "params=!f32:2,3"},
    {"tg_adamw", "params=!f32:2,3"},
    {"tg_rmsprop", "params=!f32:2,3"},
    {"tg_adagrad", "params=!f32:2,3"},
    {"tg_adadelta", "params=!f32:2,3"},
    {"tg_lbfgs", "params=!f32:2,3"},
    {"tg_optim_add_group", "params=!f32:2,3"},
};
static const char usual[] =
    "index=i64:2,3 indices=i64:2 ids=i64:2 targets=i64:2 mask=bool:2,3 roots=!f32: root=!f32: outputs=!f32: "
    "grads=f32: grad_outputs=f32: inputs=!f32:2 "
    "n=2 m=2 n_in=2 n_out=1 max=4 dim=0 dim0=0 start_dim=0 source=0 k=1 flags=0 reduction=1 "
    "size=1 start=0 length=1 offset=0 diagonal=0 classes=4 low=0 high=4 ignore_index=-100 correction=0 end=2 "
    "p=0.5 label_smoothing=0 eps=0.00001 "
    "shape=2,3 dims=0 shifts=1 counts=1,2 pads=1,1 training=1 on=1 "
    "kernel=2 stride=1 padding=1 dilation=1 output_padding=0 groups=1 output=2";

/* The text after "name=" in a list of such, or NULL. */
static const char *value_in(const char *list, const char *name)
{
    size_t n = strlen(name);
    const char *p = list;
    while (p && *p) {
        if (strncmp(p, name, n) == 0 && p[n] == '=') return p + n + 1;
        p = strchr(p, ' ');
        if (p) ++p;
    }
    return NULL;
}

/* That of a parameter of a function, or `otherwise`. */
static const char *recipe_of(const char *function, const char *name, const char *otherwise)
{
    const char *value = NULL;
    size_t i;
    for (i = 0; i < sizeof recipes / sizeof recipes[0] && !value; ++i) {
        if (strcmp(function, recipes[i].function) == 0) value = value_in(recipes[i].arguments, name);
    }
    if (!value) value = value_in(usual, name);
    return value ? value : otherwise;
}

/* "2,3" */
static tg_shape read_shape(const char *text)
{
    tg_shape shape = TG_SCALAR;
    char *end;
    while (*text == '-' || (*text >= '0' && *text <= '9')) {
        shape.dim[shape.ndim++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return shape;
}
