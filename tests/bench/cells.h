/* The cells of the sweep: which ops are measured with which inputs.  A family is a list of ops that are called alike,
 * with the forms of their inputs; a form becomes cells at the points of a grid.  `sweep missing` fails when an op of
 * the op table or a row of samples.h is in no family.
 *
 * In a form, letters stand for sizes of the point: N, C, D = 2 C, M = N / 8 and K = (C + 3) / 4.  sweep.c says what the
 * rest means. */
#ifndef CELLS_H
#define CELLS_H

#include <stdint.h>

/* A point of a grid.  Each is measured forward in f32; the marks say what else is measured there, and which points the
   coarse grid keeps.  That has other dtypes only in the first form of a family, and backward only in f32. */
enum { COARSE = 1, BACKWARD = 2, DTYPES = 4 };
typedef struct { int64_t N, C; int marks; } point;

static const point sizes[] = {
    {1, 1, COARSE | BACKWARD}, {16, 1, 0}, {256, 1, 0}, {4096, 1, BACKWARD}, {65536, 1, COARSE | BACKWARD | DTYPES},
    {1048576, 1, COARSE}, {4194304, 1, BACKWARD}, {0, 0, 0}};
static const point rows[] = {
    {65536, 1, 0}, {32768, 2, BACKWARD}, {16384, 4, COARSE | BACKWARD}, {8192, 8, 0}, {4096, 16, BACKWARD},
    {2048, 32, 0}, {1024, 64, COARSE | BACKWARD | DTYPES}, {655, 100, 0}, {256, 256, BACKWARD}, {64, 1024, COARSE},
    {16, 4096, 0}, {1024, 1024, BACKWARD}, {0, 0, 0}};
static const point square[] = {{256, 256, COARSE | BACKWARD}, {1024, 1024, BACKWARD}, {0, 0, 0}};
static const point once[] = {{1, 1, COARSE | BACKWARD | DTYPES}, {0, 0, 0}}; /* of forms without letters */

typedef struct {
    const char *ops;    /* their names in samples.h */
    const char *dtypes; /* f32, and those at points with DTYPES */
    const point *grid;
    const char *forms;  /* ends of cells, between semicolons */
} family;

#define ALL "f32 f64 bf16 f16 i64 u8 bool"
#define INTEGERS "f32 f64 bf16 f16 i64 u8"
#define FLOATS "f32 f64 bf16 f16"
#define NAME(name, ...) " " #name
#define UNARY UNARY_ROWS(NAME, NAME)
#define SCALAR                                                                                                     \
    "add_scalar sub_scalar rsub_scalar mul_scalar div_scalar pow_scalar clamp clamp_min clamp_max eq_scalar "      \
    "ne_scalar lt_scalar le_scalar gt_scalar ge_scalar"
#define ACTIVATION "leaky_relu elu celu hardtanh relu6 softplus gelu"
#define ARITHMETIC "add sub mul div pow maximum minimum atan2 add_alpha"
#define COMPARISON "eq ne lt le gt ge logical_and logical_or logical_xor"
#define LOSS "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div"
#define LAYOUTS "NxC:t; NxC:s; NxC:g; NxC:e"
#define ALONG "NxC dim=1; CxN dim=0; 8xCxM dim=1"
#define ALONG_LAYOUTS "NxC:t dim=1; NxC:t dim=0; NxC:s dim=1; NxC:e dim=1; NxC:e dim=0"

static const family families[] = {
    /* element by element */
    {UNARY, ALL, sizes, "N"},
    {UNARY, "f32", square, LAYOUTS},
    {SCALAR, ALL, sizes, "N"},
    {SCALAR, "f32", square, LAYOUTS},
    {"pow_scalar", FLOATS, sizes, "N num=2; N num=0.5 positive; N num=-1.5 positive"},
    {ACTIVATION, FLOATS, sizes, "N"},
    {ACTIVATION, "f32", square, LAYOUTS},
    {"gelu", FLOATS, sizes, "N flag=1"},
    {ARITHMETIC " " COMPARISON, ALL, sizes, "N,N"},
    {ARITHMETIC " " COMPARISON, "f32", square,
     "NxC,Nx1; NxC,C; NxC,0d; Nx1,C; 0d,NxC; NxC:t,NxC; NxC,NxC:t; NxC:t,NxC:t; NxC:s,NxC; NxC:g,NxC; NxC,NxC:e"},
    {"add sub mul div maximum eq logical_and", "f32", once,
     "8x64x16x16,64x1x1; 8x64x16x16,8x64x1x1; 8x1x16x16,8x64x16x16; 64x256x4,64x1x4"},
    {"add sub mul div maximum eq logical_and", "f32", rows, "NxC,NxC; NxC,Nx1; NxC,C; NxC:s,NxC:s"},
    {"lerp_scalar", FLOATS, sizes, "N,N"},
    {"lerp", FLOATS, sizes, "N,N,N"},
    {"addcdiv", FLOATS, sizes, "N,N,N"},
    {"addcmul", INTEGERS, sizes, "N,N,N"},
    {"lerp addcmul addcdiv", "f32", square, "NxC:t,NxC,NxC; NxC,Nx1,C; NxC:s,NxC:s,NxC:s"},
    {"lerp_scalar", "f32", square, "NxC:t,NxC; NxC,Nx1; NxC:s,NxC:s"},
    {"where", ALL, sizes, "N,N,N:m"},
    {"where", "f32", square, "NxC,0d,NxC:m; NxC,NxC,Nx1:m; NxC,NxC,C:m; NxC:t,NxC,NxC:m"},
    {"masked_fill", ALL, sizes, "N,N:m"},
    {"masked_fill", "f32", square, "NxC,Nx1:m; NxC,C:m; NxC:t,NxC:m"},
    {"prelu", FLOATS, sizes, "N,1"},
    {"prelu", FLOATS, once, "8x64x16x16,64; 1024x64,64"},
    {LOSS, FLOATS, sizes, "N,N:c flag=1"},
    {LOSS, "f32", sizes, "N,N:c flag=0"},
    {LOSS, "f32", square, "NxC,NxC flag=2; NxC:t,NxC:c flag=1; NxC:s,NxC:c flag=1"},
    {"kl_div", "f32", rows, "NxC,NxC:c flag=3"},
    /* reductions */
    {"sum prod amax amin any all max min", ALL, sizes, "N"},
    {"mean logsumexp var std norm", FLOATS, sizes, "N"},
    {"sum prod amax any all max mean logsumexp var std norm", "f32", square, LAYOUTS},
    {"sum_dim prod_dim amax_dim amin_dim any_dim all_dim max_dim min_dim argmax argmin", ALL, rows, ALONG},
    {"mean_dim logsumexp_dim var_dim std_dim norm_dim", FLOATS, rows, ALONG},
    {"norm_dim", "f32", rows, "NxC dim=1 num=1; NxC dim=0 num=inf; NxC dim=1 num=3"},
    {"sum_dim prod_dim amax_dim any_dim all_dim max_dim argmax mean_dim logsumexp_dim var_dim std_dim norm_dim", "f32",
     square, ALONG_LAYOUTS},
    {"sum_dims amax_dims amin_dims any_dims all_dims mean_dims logsumexp_dims var_dims std_dims norm_dims prod_dims",
     FLOATS, once, "8x64x16x16 dims=0,2,3; 8x64x16x16 dims=2,3; 8x64x128 dims=0,1; 16x4x16x64 dims=0,2 flag=1"},
    {"sum_to", FLOATS, square, "NxC,C; NxC,Nx1; NxC,0d"},
    {"sum_to", FLOATS, once, "8x64x16x16,64x1x1"},
    {"trace", FLOATS, square, "NxC"},
    /* along a dim */
    {"cumsum", ALL, rows, ALONG},
    {"sort", ALL, rows, ALONG},
    {"sort", "f32", rows, "NxC dim=1 flag=1"},
    {"topk", INTEGERS, rows, "NxC dim=1 count=K flag=1; CxN dim=0 count=K flag=1; 8xCxM dim=1 count=K flag=0; "
     "NxC dim=1 count=1 flag=1"},
    {"softmax log_softmax unit_length", FLOATS, rows, ALONG},
    {"glu", FLOATS, rows, "NxD dim=1; DxN dim=0; 8xDxM dim=1"},
    {"cosine_similarity", FLOATS, rows, "NxC,NxC dim=1; CxN,CxN dim=0"},
    {"cumsum sort softmax log_softmax unit_length glu", "f32", square, ALONG_LAYOUTS},
    {"sort cumsum", "f32", sizes, "N dim=0"},
    {"cdist", FLOATS, once, "64x16,96x16; 256x64,128x64; 256x64,128x64 num=1; 4x64x8,4x64x8"},
    /* norms */
    {"normalize", FLOATS, rows, "NxC count=1"},
    {"layer_norm", FLOATS, rows, "NxC,C,C count=1"},
    {"rms_norm", FLOATS, rows, "NxC,C count=1"},
    {"add_layer_norm", FLOATS, rows, "NxC,NxC,C,C count=1"},
    {"add_rms_norm", FLOATS, rows, "NxC,NxC,C count=1"},
    {"layer_norm", "f32", square, "NxC:t,C,C count=1; NxC:s,C,C count=1; NxC:e,C,C count=1; 8x32xC,32xC,32xC count=2"},
    {"rms_norm", "f32", square, "NxC:t,C count=1; NxC:s,C count=1"},
    {"batch_norm instance_norm", FLOATS, once, "8x64x16x16,64,64; 4x16x32x32,16,16; 16x64x64,64,64"},
    {"batch_norm", "f32", rows, "NxC,C,C"},
    {"batch_norm_by_running", FLOATS, once, "8x64x16x16,64:c,64:c,64,64; 1024x64,64:c,64:c,64,64"},
    {"channel_norm", "f32", once, "8x64x16x16,64,64 count=4"},
    {"group_norm", FLOATS, once, "8x64x16x16,64,64 count=8; 4x16x32x32,16,16 count=1; 64x128,128,128 count=32"},
    /* copies, and views: these cost what a call costs */
    {"to clone contiguous fill_ zero_", ALL, sizes, "N"},
    {"copy_", ALL, sizes, "N,N"},
    {"clone contiguous", "f32", square, LAYOUTS},
    {"contiguous", "f32", rows, "NxC:t; NxC:s; NxC:g; 8xCxM:t"},
    {"copy_", "f32", square, "NxC,NxC:t; NxC,NxC:s; NxC,C; NxC:t,NxC"},
    {"to", "f32 f64 i64", sizes, "N text=f32; N text=f64; N text=bf16; N text=f16; N:c text=i64; N:c text=u8; "
     "N:c text=bool"},
    {"to", "bf16 f16 u8 bool", sizes, "N text=f32; N text=f64; N:c text=i64"},
    {"to", "f32", square, "NxC:t text=bf16; NxC:s text=f64"},
    {"as_strided strided_add", FLOATS, once, "64x64; 512x128"},
    {"scatter_view", FLOATS, once, "64x64,64; 512x128,128"},
    {"view reshape", FLOATS, once, "64x64 dims=4096; 512x128 dims=128,512"},
    {"reshape", FLOATS, once, "256x256:t dims=65536; 64x32x32:t dims=64,1024"},
    {"flatten", FLOATS, once, "8x16x32 dim=1 dim2=2; 64x32x32:t dim=0 dim2=2"},
    {"squeeze", FLOATS, once, "64x1x64 dim=1"},
    {"unsqueeze", FLOATS, once, "64x64 dim=1"},
    {"transpose movedim", FLOATS, once, "8x16x32 dim=0 dim2=2"},
    {"t", FLOATS, once, "64x64; 256x1024"},
    {"permute", FLOATS, once, "8x16x32 dims=2,0,1; 8x64x16x16 dims=0,2,3,1"},
    {"expand", FLOATS, once, "64x1 dims=64,64; 256 dims=256,256"},
    {"narrow", FLOATS, once, "64x64 dim=1 count=16 count2=32; 256x256 dim=0 count=16 count2=128"},
    {"select", FLOATS, once, "64x64 dim=1 count=16; 256x256 dim=0 count=3"},
    {"slice", FLOATS, once, "64x64 dim=1 dims=4,60,2; 256x256 dim=0 dims=0,128,1"},
    {"diagonal", FLOATS, once, "64x64 dim2=1; 8x256x256 dim=1 dim2=2 count=1"},
    {"unfold", FLOATS, once, "4096 dim=0 count=8 count2=8; 64x256 dim=1 count=16 count2=4"},
    {"split", FLOATS, once, "64x64 dim=1 count=16; 256x256 dim=0 count=64"},
    {"chunk", FLOATS, once, "64x64 dim=1 count=4; 256x256 dim=0 count=4"},
    {"unbind", FLOATS, once, "8x64 dim=0; 256x8 dim=1"},
    {"cat stack", INTEGERS, square, "NxC,NxC dim=0; NxC,NxC dim=1; NxC:t,NxC dim=1"},
    {"cat stack", INTEGERS, rows, "NxC,NxC dim=1; NxC,NxC dim=0"},
    {"cat", "f32", once, "8x64,8x64,8x64,8x64 dim=0; 1x64,1x64 dim=0"},
    {"repeat", ALL, rows, "NxC dims=2,2"},
    {"repeat", "f32", once, "64x64 dims=4,1; 4096 dims=16; 64x1 dims=1,256"},
    {"roll", ALL, rows, "NxC dims=1 dims2=1; NxC dims=3 dims2=0"},
    {"repeat_interleave", ALL, rows, "NxC count=2 dim=1; NxC count=2 dim=0"},
    {"meshgrid", FLOATS, square, "N,C"},
    {"flip", ALL, rows, "NxC dims=1; NxC dims=0; NxC dims=0,1"},
    {"tril triu", ALL, rows, "NxC"},
    {"tril triu", "f32", square, "NxC; NxC count=1; NxC:t"},
    {"pad", ALL, rows, "NxC dims=1,1 num=1; NxC dims=0,0,2,2"},
    {"pad", "f32", once, "8x16x32x32 dims=1,1,1,1; 64x256 dims=-8,-8"},
    /* indexing */
    {"index_select", ALL, rows, "NxC,N:iN dim=0; NxC,C:iC dim=1"},
    {"index_select", "f32", square, "NxC:t,N:iN dim=0; NxC:s,N:iN dim=0"},
    {"gather", ALL, rows, "NxC,NxC:iC dim=1; NxC,NxC:iN dim=0; NxC,Nx1:iC dim=1"},
    {"take_along_dim", ALL, rows, "NxC,NxC:iC dim=1; NxC,NxC:iN dim=0"},
    {"embedding", FLOATS, rows, "NxC,N:iN; NxC,64:iN"},
    {"scatter scatter_ scatter_add scatter_add_", INTEGERS, rows, "NxC,NxC:iC,NxC dim=1; NxC,NxC:iN,NxC dim=0"},
    {"index_add index_add_", INTEGERS, rows, "NxC,N:iN,NxC dim=0; NxC,C:iC,NxC dim=1"},
    {"index", ALL, rows, "NxC,N:iN; NxC,C:iC count=1; NxC,N:iN,N:iC"},
    {"index", FLOATS, rows, "NxC,NxC:m"},
    {"index_put index_put_", INTEGERS, rows, "NxC,NxC,N:iN; NxC,NxC,N:iN flag=1; NxC,N,N:iN,N:iC"},
    {"index_put", "f32", rows, "NxC,0d:c,NxC:m"},
    {"masked_select", ALL, rows, "NxC,NxC:m; NxC,Nx1:m"},
    {"nonzero", ALL, sizes, "N"},
    {"nonzero", ALL, rows, "NxC"},
    {"one_hot", "f32", rows, "N:iC count=C"},
    {"bincount", "f32", sizes, "N:i100; N:i1000,N"},
    /* products */
    {"matmul mm", INTEGERS, once,
     "1x1,1x1; 8x8,8x8; 32x32,32x32; 64x64,64x64; 128x128,128x128; 256x256,256x256; 1x256,256x256; 256x256,256x1; "
     "256x4,4x256; 4x256,256x4; 100x100,100x100; 128x128:t,128x128; 128x128,128x128:t; 128x128:s,128x128"},
    {"matmul", "f32", once, "512x512,512x512; 8x32x64,64x32; 8x64x32,8x32x64; 256,256x256; 256x256,256; "
     "4x8x16x32,4x8x32x16"},
    {"bmm", INTEGERS, once, "8x32x32,8x32x32; 64x8x8,64x8x8; 512x4x4,512x4x4; 16x64x32,16x32x64; 16x64x32:t,16x32x64"},
    {"mv", INTEGERS, once, "16x16,16; 256x256,256; 1024x1024,1024; 256x256:t,256; 4096x16,16"},
    {"dot", INTEGERS, sizes, "N,N"},
    {"outer", INTEGERS, square, "N,C"},
    {"linear linear_gelu", FLOATS, once,
     "1x16,16x16,16; 1x256,256x256,256; 32x64,64x64,64; 32x784,512x784,512; 64x256,256x256,256; 8x64x128,384x128,384"},
    {"addmm", INTEGERS, once, "64,64x64,64x64; 64x64,64x64,64x64; 256,128x256,256x256"},
    {"einsum", FLOATS, once,
     "64x64,64x64 text=ij,jk->ik; 8x32x32,8x32x32 text=bij,bjk->bik; 64x64 text=ij->ji; 64x64,64x64 text=ij,ij->; "
     "8x16x64,8x32x64 text=bid,bjd->bij; 64,64 text=i,j->ij"},
    {"nn_bilinear", FLOATS, once, "32x16,32x24,8x16x24:c,8:c"},
    {"scaled_dot_product_attention", FLOATS, once,
     "2x4x64x32,2x4x64x32,2x4x64x32; 2x4x64x32,2x4x64x32,2x4x64x32 flag=1; 1x8x128x64,1x8x128x64,1x8x128x64 flag=1; "
     "2x4x64x32,2x4x64x32,2x4x64x32,64x64:m; 2x4x64x32,2x4x64x32,2x4x64x32,64x64:c; 2x4x1x32,2x4x128x32,2x4x128x32"},
    {"lstm_cell", FLOATS, once, "32x512,32x512,32x128; 1x64,1x64,1x16"},
    /* convolutions and pools */
    {"conv conv1d", FLOATS, once, "8x16x64,32x16x3,32 dims2=1; 8x16x64,32x16x5,32 dims=2"},
    {"conv2d", FLOATS, once,
     "8x3x32x32,16x3x3x3,16 dims2=1; 8x16x16x16,32x16x3x3,32 dims2=1; 8x32x8x8,64x32x3x3,64 dims=2 dims2=1; "
     "8x32x16x16,32x32x1x1,32; 4x32x16x16,32x1x3x3,32 dims2=1 count2=32; 4x32x16x16,32x8x3x3,32 dims2=1 count2=4; "
     "1x1x28x28,8x1x5x5,8; 4x16x16x16,16x16x3x3,16 dims2=2 count=2; 2x3x32x32,16x3x7x7,16 dims=2 dims2=3"},
    {"conv3d", FLOATS, once, "2x4x8x16x16,8x4x3x3x3,8 dims2=1"},
    {"conv_transpose conv_transpose1d", FLOATS, once, "8x16x32,16x8x4,8 dims=2 dims2=1"},
    {"conv_transpose2d", FLOATS, once, "8x16x8x8,16x8x4x4,8 dims=2 dims2=1; 4x8x16x16,8x8x3x3,8 dims2=1"},
    {"conv_transpose3d", FLOATS, once, "2x8x4x8x8,8x4x2x2x2,4 dims=2"},
    {"conv_weight", FLOATS, once, "8x16x64,8x32x64 dim=1 dim2=1 count2=1 dims=32,16,3"},
    {"max_pool window_sum", FLOATS, once, "8x16x32x32 dims=2 dims2=2; 8x16x32x32 dims=3 dims2=2 count=1; "
     "8x16x32x32:t dims=2 dims2=2"},
    {"max_pool2d avg_pool2d", FLOATS, once, "8x16x32x32 dims=2 dims2=2; 8x16x16x16 dims=3 dims2=1"},
    {"max_pool1d avg_pool1d", FLOATS, once, "8x16x256 dims=2 dims2=2; 8x16x256 dims=3 dims2=1 count=1"},
    {"max_pool1d_ex", FLOATS, once, "8x16x256 dims=2 dims2=2 count2=1; "
     "8x16x256 dims=3 dims2=2 count=1 count2=2 flag=1"},
    {"max_pool2d_ex", FLOATS, once, "8x16x32x32 dims=2 dims2=2 count2=1; "
     "8x16x32x32 dims=3 dims2=2 count=1 count2=2 flag=1"},
    {"avg_pool1d_ex", FLOATS, once, "8x16x256 dims=3 dims2=2 count=1 flag=1"},
    {"avg_pool2d_ex", FLOATS, once, "8x16x32x32 dims=3 dims2=2 count=1 flag=1"},
    {"adaptive_max_pool1d adaptive_avg_pool1d adaptive_max_pool1d_ex", FLOATS, once,
     "8x16x256 dims=1; 8x16x256 dims=100"},
    {"adaptive_max_pool2d adaptive_avg_pool2d adaptive_max_pool2d_ex", FLOATS, once,
     "8x16x32x32 dims=1,1; 8x16x32x32 dims=7,7"},
    {"max_pool3d avg_pool3d", FLOATS, once, "2x8x16x16x16 dims=2 dims2=2; 2x8x8x16x16 dims=3 dims2=1 count=1"},
    {"max_pool3d_ex", FLOATS, once, "2x8x8x16x16 dims=3 dims2=2 count=1 count2=2 flag=1"},
    {"avg_pool3d_ex", FLOATS, once, "2x8x8x16x16 dims=3 dims2=2 count=1 flag=1"},
    {"adaptive_max_pool3d adaptive_avg_pool3d adaptive_max_pool3d_ex", FLOATS, once,
     "2x8x8x16x16 dims=1,1,1; 2x8x8x16x16 dims=3,5,5"},
    {"lp_pool1d", FLOATS, once, "8x16x256 dims=2 dims2=2 num=2"},
    {"lp_pool2d", FLOATS, once, "8x16x32x32 dims=2 dims2=2 num=2"},
    {"lp_pool3d", FLOATS, once, "2x8x8x16x16 dims=2 dims2=2 num=2"},
    {"max_unpool1d", FLOATS, once, "8x16x128,8x16x128:i256 dims=2"},
    {"max_unpool max_unpool2d", FLOATS, once, "8x16x16x16,8x16x16x16:i1024 dims=2"},
    {"max_unpool3d", FLOATS, once, "2x8x4x8x8,2x8x4x8x8:i2048 dims=2"},
    {"grid_sample", FLOATS, once, "4x16x32x32,4x32x32x2 text=bilinear; 4x16x32x32,4x32x32x2 text=bicubic count=1; "
     "4x16x32x32,4x32x32x2 text=nearest count=2; 2x8x16x16x16,2x16x16x16x3 text=bilinear"},
    {"affine_grid", FLOATS, once, "8x2x3 dims=8,3,32,32"},
    {"interpolate", FLOATS, once,
     "8x16x16x16 dims=32,32 text=nearest; 8x16x16x16 dims=32,32 text=bilinear; 8x16x128 dims=256 text=linear; "
     "8x16x32x32 dims=16,16 text=nearest; 8x16x32x32 dims=20,20 text=bilinear"},
    /* composites */
    {"hypot logaddexp fmax fmin", FLOATS, sizes, "N,N"},
    {"fmod remainder floor_divide xlogy", FLOATS, sizes, "N,N positive"},
    {"div_rounded", FLOATS, sizes, "N,N text=floor positive"},
    {"frac sinc tanhshrink", FLOATS, sizes, "N"},
    {"logit", FLOATS, sizes, "N num=-1 positive"},
    {"round_decimals", FLOATS, sizes, "N count=2"},
    {"nan_to_num", FLOATS, sizes, "N num=0 num2=1"},
    {"hardshrink softshrink", FLOATS, sizes, "N num=0.5"},
    {"threshold", FLOATS, sizes, "N num=0.5 num2=1"},
    {"nansum nanmean count_nonzero", FLOATS, rows, "NxC dims=1"},
    {"dist", FLOATS, sizes, "N,N num=2"},
    {"pairwise_distance", FLOATS, rows, "NxC,NxC num=2"},
    {"argsort median_dim cumprod logcumsumexp cummax cummin softmin", FLOATS, rows, "NxC dim=1"},
    {"msort median", FLOATS, rows, "NxC"},
    {"kthvalue", FLOATS, rows, "NxC dim=1 count=1"},
    {"local_response_norm", FLOATS, once, "8x16x16x16 count=5 num=0.0001"},
    {"soft_margin_loss", FLOATS, once, "256x64,256x64:c flag=1"},
    {"hinge_embedding_loss", FLOATS, once, "256x64,256x64:c num=1 flag=1"},
    {"margin_ranking_loss", FLOATS, once, "4096,4096,4096:c num=0.5 flag=1"},
    {"gaussian_nll_loss", FLOATS, once, "256x64,256x64,256x64 flag=1 positive"},
    {"poisson_nll_loss", FLOATS, once, "256x64,256x64:c flag=1"},
    {"cosine_embedding_loss", FLOATS, once, "256x64,256x64,256:c num=0.1 flag=1"},
    {"triplet_margin_loss", FLOATS, once, "256x64,256x64,256x64 num=1 flag=1"},
    {"multilabel_margin_loss", FLOATS, once, "64x32,64x32:i32 flag=1"},
    {"ctc_loss", FLOATS, once, "50x4x20,4x10:i20 dims=50,50,50,50 dims2=10,10,10,10 flag=1"},
    {"multi_margin_loss", FLOATS, once, "256x64,256:i64 count=1 num=1 flag=1"},
    {"multilabel_soft_margin_loss", FLOATS, once, "256x64,256x64:c flag=1"},
    {"triplet_margin_with_distance_loss", FLOATS, once, "256x64,256x64,256x64 num=1 flag=1"},
    {"feature_dropout dropout2d", FLOATS, once, "8x16x16x16 num=0.5 flag=1"},
    {"dropout1d", FLOATS, once, "8x64x64 num=0.5 flag=1"},
    {"dropout3d", FLOATS, once, "8x16x4x16x16 num=0.5 flag=1"},
    {"alpha_dropout feature_alpha_dropout", FLOATS, once, "8x16x16x16 num=0.5 flag=1"},
    {"rrelu", FLOATS, once, "256x256 num=0.125 num2=0.333 flag=1"},
    {"gumbel_softmax", FLOATS, once, "256x64 num=1 dim=1"},
    {"ravel atleast_1d atleast_2d atleast_3d", FLOATS, sizes, "N"},
    {"unflatten", FLOATS, once, "256x64 dim=1 dims=8,8"},
    {"squeeze_dims", FLOATS, once, "256x1x64x1 dims=1,3"},
    {"movedim_dims", FLOATS, once, "16x32x64 dims=0,1 dims2=2,0"},
    {"hstack vstack dstack", FLOATS, once, "256x64,256x64"},
    {"split_sizes", FLOATS, once, "256x64 dim=1 dims=16,32,16"},
    {"meshgrid_xy", FLOATS, once, "256,64"},
    {"tile", FLOATS, once, "256x64 dims=2,3"},
    {"fliplr flipud", FLOATS, rows, "NxC"},
    {"rot90", FLOATS, once, "256x64 count=1 dims=0,1"},
    {"diag", FLOATS, once, "256 count=1; 256x64 count=0"},
    {"pixel_shuffle pixel_unshuffle", FLOATS, once, "8x16x16x16 count=2"},
    {"channel_shuffle", FLOATS, once, "8x16x16x16 count=4"},
    {"addmv", FLOATS, once, "256,256x64,64 num=1 num2=1"},
    {"baddbmm", FLOATS, once, "4x64x32,4x64x16,4x16x32 num=1 num2=1"},
    {"addbmm", FLOATS, once, "64x32,4x64x16,4x16x32 num=1 num2=1"},
    {"inner", FLOATS, once, "64x32,16x32"},
    {"tensordot", FLOATS, once, "64x32x8,8x32x4 dims=1,2 dims2=1,0"},
    {"kron", FLOATS, once, "16x16,8x8"},
    {"cross", FLOATS, once, "4096x3,4096x3 dim=1"},
    {"bilinear", FLOATS, once, "64x16,64x8,32x16x8,32"},
    {"take", FLOATS, once, "256x64,4096:i16384"},
    {"index_fill", FLOATS, once, "256x64,64:i256 num=1"},
    {"index_copy", FLOATS, once, "256x64,1:i256,1x64"},
    {"index_copy_", FLOATS, once, "12x1024x64,1:i1024,12x1x64 dim=1"},
    {"scaled_dot_product_attention_ex", FLOATS, once,
     "1x12x1x64,1x4x512x64,1x4x512x64 flag=1 dim2=1 count=511; 1x12x64x64,1x4x64x64,1x4x64x64 flag=1 dim2=1"},
    {"rope", FLOATS, once, "1x12x1x64,1x32,1x32; 1x12x256x64,256x32,256x32; 1x12x256x64,256x32,256x32 flag=1"},
    {"filter_logits", FLOATS, once, "1x50257 count=50 num=1; 1x50257 num=0.9"},
    {"repetition_penalty", FLOATS, once, "1x50257,1x256:i50257 num=1.1"},
    {"sample_logits", FLOATS, once, "1x50257 num=1 num2=1; 1x50257 count=50 num=0.9 num2=1"},
    {"masked_scatter", FLOATS, once, "256x64,256x64:m,256x64"},
    {"embedding_bag", FLOATS, once, "1024x64,256x8:i1024 count=-1 text=sum"},
    {"pad_mode", FLOATS, once, "8x16x16x16 dims=2,2,2,2 text=reflect"},
    {"im2col", FLOATS, once, "8x16x16x16 dims=1 dims2=0 count=1"},
    {"col2im", FLOATS, once, "8x64x6 dims=1 dims2=0 count=1"},
    {"fft fft_fft fft_ifft", "f32 f64", once,
     "256x256x2 count=-1 dim2=1; 64x1024x2 count=-1 dim2=1; 16x4096x2 count=-1 dim2=1; "
     "4x65536x2 count=-1 dim2=1; 100x1000x2 count=-1 dim2=1; 10x1009x2 count=-1 dim2=1"},
    {"fft_rfft fft_ihfft", "f32 f64", once,
     "256x256 count=-1 dim=1; 64x1024 count=-1 dim=1; 16x4096 count=-1 dim=1; "
     "4x65536 count=-1 dim=1; 100x1000 count=-1 dim=1"},
    {"fft_irfft fft_hfft", "f32 f64", once,
     "256x129x2 count=-1 dim2=1; 64x513x2 count=-1 dim2=1; 4x32769x2 count=-1 dim2=1"},
    {"fft_fft2 fft_ifft2 fft_fftn fft_ifftn", "f32 f64", once, "128x128x2"},
    {"fft_rfft2 fft_ihfft2 fft_rfftn fft_ihfftn", "f32 f64", once, "128x128"},
    {"fft_irfft2 fft_hfft2 fft_irfftn fft_hfftn", "f32 f64", once, "128x65x2"},
    {"fft_fftshift fft_ifftshift", FLOATS, once, "256x256"},
    {"stft", "f32 f64", once, "4x16000,400:c count=400 count2=160 flag=1 text=reflect"},
    {"istft", "f32 f64", once, "4x201x101x2,400:c count=400 count2=160 flag=1 num=16000"},
    {"complex polar", FLOATS, once, "256x256,256x256"},
    {"real imag complex_conj complex_abs complex_angle", FLOATS, once, "256x256x2"},
    {"complex_mul", FLOATS, once, "256x256x2,256x256x2"},
    {"interpolate_ex", FLOATS, once, "8x16x16x16 dims=32,32 text=bicubic; 8x16x16x16 dims=32 text=nearest-exact"},
    {"tensor_split", FLOATS, once, "256x64 dim=1 count=3"},
    {"tensor_split_at", FLOATS, once, "256x64 dim=1 dims=16,48"},
    {"hsplit vsplit", FLOATS, once, "256x64 count=2"},
    {"dsplit", FLOATS, once, "16x16x64 count=2"},
    {"column_stack", FLOATS, once, "4096,4096"},
    {"block_diag", FLOATS, once, "64x64,32x64,64x16"},
    {"cartesian_prod", FLOATS, once, "256,64"},
    {"combinations", FLOATS, once, "128 count=2"},
    {"diag_embed", FLOATS, once, "64x64 count=0 dims=-2,-1"},
    {"diagflat", FLOATS, once, "128 count=0"},
    {"diagonal_scatter", FLOATS, once, "128x128,128 count=0 dim=0 dim2=1"},
    {"select_scatter", FLOATS, once, "256x64,64 dim=0 count=3"},
    {"slice_scatter", FLOATS, once, "256x64,128x64 dim=0 dims=0,256,2"},
    {"vander", FLOATS, once, "256 count=8"},
    {"cov", FLOATS, once, "64x256 count=1"},
    {"corrcoef", FLOATS, once, "64x256"},
    {"pdist", FLOATS, once, "128x64 num=2"},
    {"renorm", FLOATS, once, "256x64 num=2 dim=0 num2=1"},
    {"diff", FLOATS, rows, "NxC count=1 dim=1"},
    {"trapezoid cumulative_trapezoid", FLOATS, rows, "NxC num=1 dim=1"},
    {"put", FLOATS, once, "256x64,4096:i16384,4096 flag=1"},
    {"nanmedian_dim mode", FLOATS, rows, "NxC dim=1"},
    {"nanmedian", FLOATS, rows, "NxC"},
    {"quantile nanquantile", FLOATS, once, "256x256,4:c dims=1 text=linear"},
    {"searchsorted", FLOATS, once, "256x256,256x256:c"},
    {"bucketize", FLOATS, once, "65536,1024:c"},
    {"isin", FLOATS, once, "65536,1024:c"},
    {"histc", FLOATS, once, "65536 count=100 num=-2 num2=2"},
    {"unique unique_consecutive", FLOATS, sizes, "N"},
    {"unique_dim unique_consecutive_dim", FLOATS, once, "4096x4 dim=0"},
    {"repeat_interleave_tensor", FLOATS, once, "4096,4096:i4 dim=0"},
    {"scatter_reduce", FLOATS, once, "4096,65536:i4096,65536 dim=0 text=amax flag=1; "
     "4096,65536:i4096,65536 dim=0 text=mean flag=1"},
    {"index_reduce", FLOATS, once, "256x64,4096:i256,4096x64 dim=0 text=amax flag=1"},
    /* losses of classes */
    {"cross_entropy", FLOATS, rows, "NxC,N:iC"},
    {"cross_entropy", FLOATS, once, "8x10x16x16,8x16x16:i10; 64x10,64x10:c"},
    {"cross_entropy_ex", FLOATS, once, "1024x64,1024:i64,64:c count=-100 flag=1; "
     "256x64,256:i64 count=-100 num=0.1 flag=1"},
    {"nll_loss", FLOATS, rows, "NxC,N:iC,C:c count=-100 flag=1"},
    /* others */
    {"dropout", FLOATS, sizes, "N num=0.5 flag=1"},
    {"multinomial", FLOATS, rows, "NxC count=1 flag=1"},
    {"multinomial", FLOATS, once, "16x256 count=64; 4096 count=256 flag=1"},
    {"checkpoint", FLOATS, square, "NxC"},
    {"custom", FLOATS, sizes, "N"},
    {"equal allclose", ALL, sizes, "N,N:a"},
    {"grad_scaler_scale", FLOATS, once, "0d"},
};

/* What the cells of an op have besides, unless the form says it; and dtypes that the op does not take. */
static const struct { const char *op, *options, *refused; } extras[] = {
    {"neg", "", "bool"}, {"sub", "", "bool"}, {"log", "positive", ""}, {"log2", "positive", ""}, {"log10",
     "positive", ""},
    {"sqrt", "positive", ""}, {"rsqrt", "positive", ""}, {"reciprocal", "positive", ""}, {"div", "positive", ""},
    {"pow", "positive", ""}, {"addcdiv", "num=2 positive", ""}, {"addcmul", "num=2", ""}, {"add_alpha", "num=2",
     "bool"},
    {"add_scalar", "num=2", ""}, {"sub_scalar", "num=2", ""}, {"rsub_scalar", "num=2", ""}, {"mul_scalar", "num=3", ""},
    {"div_scalar", "num=3", ""}, {"pow_scalar", "num=3", ""}, {"clamp", "num=-1 num2=1", ""}, {"clamp_min", "num=0",
     ""},
    {"clamp_max", "num=0", ""}, {"leaky_relu", "num=0.01", ""}, {"elu", "num=1", ""}, {"celu", "num=2", ""},
    {"hardtanh", "num=-1 num2=1", ""}, {"softplus", "num=1 num2=20", ""}, {"lerp_scalar", "num=0.1", ""},
    {"masked_fill", "num=1", ""}, {"smooth_l1_loss", "num=1", ""}, {"huber_loss", "num=1", ""},
    {"binary_cross_entropy", "positive", ""}, {"kl_div", "positive", ""}, {"norm_dim", "num=2", ""},
    {"norm_dims", "num=2", ""}, {"var_dim", "count=1", ""}, {"std_dim", "count=1", ""}, {"var_dims", "count=1", ""},
    {"std_dims", "count=1", ""}, {"unit_length", "num=2 num2=1e-12", ""}, {"cosine_similarity", "num=1e-8", ""},
    {"cdist", "num=2", ""}, {"normalize", "num=1e-5", ""}, {"layer_norm", "num=1e-5", ""}, {"rms_norm", "num=1e-5", ""},
    {"add_layer_norm", "num=1e-5", ""}, {"add_rms_norm", "num=1e-5", ""}, {"batch_norm", "num=1e-5", ""},
    {"instance_norm", "num=1e-5", ""}, {"channel_norm", "num=1e-5", ""},
    {"group_norm", "num=1e-5", ""}, {"batch_norm_by_running", "num=1e-5 positive",
     ""},
    {"fill_", "num=1", ""}, {"as_strided", "num=2", ""}, {"addmm", "num=1 num2=1", ""}, {"multinomial", "positive", ""},
};

#endif
