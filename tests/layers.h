/* Layers, one row each: the class of PyTorch, ours, the inputs, how many outputs, and what PyTorch says of it.  A new
 * layer is a row here:
 *
 *     LAYER("nn.Linear(4, 3)", tg_nn_linear(4, 3, true), "f:5,4", 1, "", "", 0, 0)
 *
 * after which tests/tools/layers.py --record fills in the last four columns, where PyTorch is installed:
 *     how PyTorch prints it, where that is one line
 *     its parameters and buffers, as "weight[3,4] bias[3]"
 *     the sum of its outputs, each element times a weight, and the same of the gradients of parameters and inputs.
 * Inputs are "f:5,4", numbers of that shape, "i:7<10", integers from 0 to 9, "b:3,3", booleans, or "n:3,5,2", these
 * integers, which are the lengths of sequences.  How the numbers, parameters and weights are made stands in
 * test_layers.c and in layers.py, in the same words. */
LAYER("nn.Linear(4, 3)", tg_nn_linear(4, 3, true), "f:5,4", 1,
    "Linear(in_features=4, out_features=3, bias=True)", "weight[3,4] bias[3]",
    -1.2972677654893621, -2.6537813048612238)
LAYER("nn.Linear(4, 3, bias=False)", tg_nn_linear(4, 3, false), "f:2,5,4", 1,
    "Linear(in_features=4, out_features=3, bias=False)", "weight[3,4]",
    -0.36685284345306257, -0.88933963574371899)
LAYER("nn.Bilinear(3, 4, 2)", tg_nn_bilinear(3, 4, 2, true), "f:5,3 f:5,4", 1,
    "Bilinear(in1_features=3, in2_features=4, out_features=2, bias=True)", "weight[2,3,4] bias[2]",
    -0.1887367641000457, -1.265397268998933)
LAYER("nn.Bilinear(3, 4, 2, bias=False)", tg_nn_bilinear(3, 4, 2, false), "f:2,5,3 f:2,5,4", 1,
    "Bilinear(in1_features=3, in2_features=4, out_features=2, bias=False)", "weight[2,3,4]",
    -0.22276110335485499, -0.63319446147847258)
LAYER("nn.Embedding(10, 3)", tg_nn_embedding(10, 3), "i:2,7<10", 1,
    "Embedding(10, 3)", "weight[10,3]",
    -1.1407432699698794, -3.5348651529874111)
LAYER("nn.Embedding(10, 3, padding_idx=2)", tg_nn_embedding_ex(10, 3, 2), "i:4,9<10", 1,
    "Embedding(10, 3, padding_idx=2)", "weight[10,3]",
    2.9430174097927804, 5.1366138076393106)
LAYER("nn.Conv1d(3, 4, 3, padding='same')",
    tg_nn_conv1d(3, 4, TG_SHAPE(3), TG_SHAPE(1), TG_SAME, TG_SHAPE(1), 1, true), "f:2,3,6", 1,
    "Conv1d(3, 4, kernel_size=(3,), stride=(1,), padding=same)", "weight[4,3,3] bias[4]",
    -2.5888580683775162, -9.2919138970087936)
LAYER("nn.Conv1d(4, 6, 2, 2, 1, 2, 2, False)",
    tg_nn_conv1d(4, 6, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(2), 2, false), "f:4,7", 1,
    "Conv1d(4, 6, kernel_size=(2,), stride=(2,), padding=(1,), dilation=(2,), groups=2, bias=False)", "weight[6,2,2]",
    -0.25961496298692077, -1.5157537472059324)
LAYER("nn.Conv2d(3, 4, 3)",
    tg_nn_conv2d(3, 4, TG_SHAPE(3), TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1, true), "f:2,3,5,4", 1,
    "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))", "weight[4,3,3,3] bias[4]",
    5.3626260724464085, 16.105608795165825)
LAYER("nn.Conv2d(4, 6, (3, 2), (2, 1), (0, 1), groups=2)",
    tg_nn_conv2d(4, 6, TG_SHAPE(3, 2), TG_SHAPE(2, 1), TG_SHAPE(0, 1), TG_SHAPE(1), 2, true), "f:2,4,5,4", 1,
    "Conv2d(4, 6, kernel_size=(3, 2), stride=(2, 1), padding=(0, 1), groups=2)", "weight[6,2,3,2] bias[6]",
    2.0755586772790342, 3.1798388741691248)
LAYER("nn.Conv3d(2, 3, 2, padding=1)",
    tg_nn_conv3d(2, 3, TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true), "f:1,2,3,2,3", 1,
    "Conv3d(2, 3, kernel_size=(2, 2, 2), stride=(1, 1, 1), padding=(1, 1, 1))", "weight[3,2,2,2,2] bias[3]",
    -18.686800615505028, -42.354514618413248)
LAYER("nn.ConvTranspose1d(4, 2, 3, 2, 1, 1)",
    tg_nn_conv_transpose1d(4, 2, TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(1), 1, true, TG_SHAPE(1)),
    "f:2,4,5", 1,
    "ConvTranspose1d(4, 2, kernel_size=(3,), stride=(2,), padding=(1,), output_padding=(1,))", "weight[4,2,3] bias[2]",
    -1.7302132920425779, -4.7803825610359123)
LAYER("nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), groups=2, bias=False, dilation=(1, 2))",
    tg_nn_conv_transpose2d(4, 6, TG_SHAPE(3, 2), TG_SHAPE(2, 1), TG_SHAPE(0), TG_SHAPE(0), 2, false, TG_SHAPE(1, 2)),
    "f:2,4,3,4", 1,
    "ConvTranspose2d(4, 6, kernel_size=(3, 2), stride=(2, 1), dilation=(1, 2), groups=2, bias=False)",
    "weight[4,3,3,2]",
    -3.9731213174778306, -18.117697850001637)
LAYER("nn.ConvTranspose3d(2, 3, 2, 2)",
    tg_nn_conv_transpose3d(2, 3, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0), TG_SHAPE(0), 1, true, TG_SHAPE(1)),
    "f:1,2,2,1,2", 1,
    "ConvTranspose3d(2, 3, kernel_size=(2, 2, 2), stride=(2, 2, 2))", "weight[2,3,2,2,2] bias[3]",
    -0.2570531091361532, 0.77545528542238917)
LAYER("nn.LayerNorm((4,))", tg_nn_layer_norm(TG_SHAPE(4), 1e-5, true), "f:5,4", 1,
    "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)", "weight[4] bias[4]",
    -1.5972902529995936, -2.3646087569602776)
LAYER("nn.LayerNorm((3, 4), elementwise_affine=False)", tg_nn_layer_norm(TG_SHAPE(3, 4), 1e-5, false), "f:5,3,4", 1,
    "LayerNorm((3, 4), eps=1e-05, elementwise_affine=False, bias=False)", "",
    -15.041586427638531, -16.183647656832544)
LAYER("nn.RMSNorm((4,), eps=1e-6)", tg_nn_rms_norm(TG_SHAPE(4), 1e-6, true), "f:5,4", 1,
    "RMSNorm((4,), eps=1e-06, elementwise_affine=True)", "weight[4]",
    -1.1882177675770056, -5.4366153332799252)
LAYER("nn.BatchNorm1d(3)", tg_nn_batch_norm(3, 1e-5, 0.1), "f:5,3", 1,
    "BatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)", "weight[3] bias[3] "
    "running_mean[3] running_var[3] num_batches_tracked[]",
    -1.7516304626330883, -4.7401870613141206)
LAYER("nn.BatchNorm2d(3, 1e-3, None, False)", tg_nn_batch_norm_ex(3, 1e-3, NAN, false, true), "f:2,3,4,5", 1,
    "BatchNorm(3, eps=0.001, momentum=None, affine=False, bias=False, track_running_stats=True)", "running_mean[3] "
    "running_var[3] num_batches_tracked[]",
    -30.259976913552375, -33.785429380879322)
LAYER("nn.BatchNorm3d(2, affine=False, track_running_stats=False).eval()",
    tg_module_train(tg_nn_batch_norm_ex(2, 1e-5, 0.1, false, false), false), "f:2,2,2,3,2", 1,
    "BatchNorm(2, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)", "",
    -11.352897199781669, -13.430043629556092)
LAYER("nn.BatchNorm1d(3).eval()", tg_module_train(tg_nn_batch_norm(3, 1e-5, 0.1), false), "f:5,3,2", 1,
    "BatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)", "weight[3] bias[3] "
    "running_mean[3] running_var[3] num_batches_tracked[]",
    -1.4334692062218706, -6.4231408931002765)
LAYER("nn.InstanceNorm2d(3)", tg_nn_instance_norm(3, 1e-5), "f:2,3,4,5", 1,
    "InstanceNorm(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)", "",
    -30.346009959590731, -33.759801300349075)
LAYER("nn.InstanceNorm1d(3, affine=True, track_running_stats=True)",
    tg_nn_instance_norm_ex(3, 1e-5, 0.1, true, true), "f:2,3,4", 1,
    "InstanceNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)", "weight[3] bias[3] "
    "running_mean[3] running_var[3] num_batches_tracked[]",
    -2.0487402302546611, -6.6218417322804797)
LAYER("nn.InstanceNorm1d(3, affine=True, track_running_stats=True).eval()",
    tg_module_train(tg_nn_instance_norm_ex(3, 1e-5, 0.1, true, true), false), "f:2,3,4", 1,
    "InstanceNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)", "weight[3] bias[3] "
    "running_mean[3] running_var[3] num_batches_tracked[]",
    -2.1736599089083852, -7.4347241257935748)
LAYER("nn.GroupNorm(2, 4)", tg_nn_group_norm(2, 4, 1e-5), "f:2,4,3,2", 1,
    "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)", "weight[4] bias[4]",
    -3.8098904955498609, -12.174498741481159)
LAYER("nn.GroupNorm(4, 4, 1e-3, False)", tg_nn_group_norm_ex(4, 4, 1e-3, false), "f:3,4,5", 1,
    "GroupNorm(4, 4, eps=0.001, affine=False, bias=False)", "",
    -11.16407123758249, -11.078244850421848)
LAYER("nn.Dropout(0.5).eval()", tg_module_train(tg_nn_dropout(0.5), false), "f:5,4", 1,
    "Dropout(p=0.5, inplace=False)", "",
    -3.3697307926679665, -6.7254130069649616)
LAYER("nn.Dropout1d(0.5).eval()", tg_module_train(tg_nn_dropout1d(0.5), false), "f:5,4,3", 1,
    "Dropout1d(p=0.5, inplace=False)", "",
    -10.925812924989984, -21.519854039508001)
LAYER("nn.Dropout2d(0.5).eval()", tg_module_train(tg_nn_dropout2d(0.5), false), "f:5,4,3,3", 1,
    "Dropout2d(p=0.5, inplace=False)", "",
    -33.219641101830916, -65.78070971231574)
LAYER("nn.MaxPool1d(3, 2, 1)", tg_nn_max_pool1d(TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1)), "f:2,3,7", 1,
    "MaxPool1d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)", "",
    -0.40498344840845429, -0.40021054551556112)
LAYER("nn.MaxPool2d(2)", tg_nn_max_pool2d(TG_SHAPE(2), TG_SCALAR, TG_SCALAR), "f:2,3,4,5", 1,
    "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)", "",
    -1.1245720498176346, -1.9968220280279392)
LAYER("nn.MaxPool2d((3, 2), (2, 1), (1, 0))",
    tg_nn_max_pool2d(TG_SHAPE(3, 2), TG_SHAPE(2, 1), TG_SHAPE(1, 0)), "f:3,4,5", 1,
    "MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), dilation=1, ceil_mode=False)", "",
    -2.1474772055522862, -1.7007081078634312)
LAYER("nn.AvgPool1d(3, 2, 1)", tg_nn_avg_pool1d(TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1)), "f:2,3,7", 1,
    "AvgPool1d(kernel_size=(3,), stride=(2,), padding=(1,))", "",
    0.0094458906730882641, 0.098916708108095053)
LAYER("nn.AvgPool2d(3, 2, 1)", tg_nn_avg_pool2d(TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1)), "f:2,3,4,5", 1,
    "AvgPool2d(kernel_size=3, stride=2, padding=1)", "",
    -0.27626710417001954, -0.083489623110963807)
LAYER("nn.AvgPool2d((3, 2))", tg_nn_avg_pool2d(TG_SHAPE(3, 2), TG_SCALAR, TG_SCALAR), "f:2,3,4,5", 1,
    "AvgPool2d(kernel_size=(3, 2), stride=(3, 2), padding=0)", "",
    -1.4491741335115749, -1.3728059039249185)
LAYER("nn.AdaptiveAvgPool1d(3)", tg_nn_adaptive_avg_pool1d(TG_SHAPE(3)), "f:2,3,7", 1,
    "AdaptiveAvgPool1d(output_size=3)", "",
    -0.55000334323696798, -0.17960038698251435)
LAYER("nn.AdaptiveAvgPool2d((3, 1))", tg_nn_adaptive_avg_pool2d(TG_SHAPE(3, 1)), "f:2,3,4,5", 1,
    "AdaptiveAvgPool2d(output_size=(3, 1))", "",
    0.12551814570672828, 0.1158434012146132)
LAYER("nn.AdaptiveMaxPool1d(4)", tg_nn_adaptive_max_pool1d(TG_SHAPE(4)), "f:2,3,7", 1,
    "AdaptiveMaxPool1d(output_size=4)", "",
    -0.40498344840845429, -0.40021054551556112)
LAYER("nn.AdaptiveMaxPool2d(2)", tg_nn_adaptive_max_pool2d(TG_SHAPE(2)), "f:2,3,4,5", 1,
    "AdaptiveMaxPool2d(output_size=2)", "",
    -2.2018514278708934, -2.9798461846931996)
LAYER("nn.Upsample(size=(3, 7), mode='bilinear')", tg_nn_upsample(TG_SHAPE(3, 7), 0, "bilinear"), "f:2,3,4,5", 1,
    "Upsample(size=(3, 7), mode='bilinear')", "",
    8.2451135378967884, 8.3390210550267412)
LAYER("nn.Upsample(size=5)", tg_nn_upsample(TG_SHAPE(5), 0, "nearest"), "f:2,3,4", 1,
    "Upsample(size=5, mode='nearest')", "",
    5.714532493386498, 6.7896239754855143)
LAYER("nn.Upsample(scale_factor=3.0, mode='linear')", tg_nn_upsample(TG_SCALAR, 3, "linear"), "f:2,3,5", 1,
    "Upsample(scale_factor=3.0, mode='linear')", "",
    1.8484921010736755, 2.290731746240688)
LAYER("nn.MaxPool3d(2, 1)", tg_nn_max_pool3d(TG_SHAPE(2), TG_SHAPE(1), TG_SCALAR), "f:2,3,4,3,2", 1,
    "MaxPool3d(kernel_size=2, stride=1, padding=0, dilation=1, ceil_mode=False)", "",
    -0.1973325025997853, -0.80349305723462727)
LAYER("nn.AvgPool3d((1, 2, 3), 2)", tg_nn_avg_pool3d(TG_SHAPE(1, 2, 3), TG_SHAPE(2), TG_SCALAR), "f:3,4,3,4", 1,
    "AvgPool3d(kernel_size=(1, 2, 3), stride=2, padding=0)", "",
    0.026178566121043786, 0.033807149167367691)
LAYER("nn.AdaptiveAvgPool3d((2, 1, 3))", tg_nn_adaptive_avg_pool3d(TG_SHAPE(2, 1, 3)), "f:2,3,4,3,4", 1,
    "AdaptiveAvgPool3d(output_size=(2, 1, 3))", "",
    0.68228668861638708, 0.253156786907906)
LAYER("nn.AdaptiveMaxPool3d(2)", tg_nn_adaptive_max_pool3d(TG_SHAPE(2)), "f:2,3,4,3,4", 1,
    "AdaptiveMaxPool3d(output_size=2)", "",
    -0.98276977653811259, -0.70270841665945849)
LAYER("nn.LPPool1d(2.0, 3, 2)", tg_nn_lp_pool1d(2, TG_SHAPE(3), TG_SHAPE(2), false), "f:2,3,8", 1,
    "LPPool1d(norm_type=2.0, kernel_size=3, stride=2, ceil_mode=False)", "",
    0.129277968135183, 0.45966383745650863)
LAYER("nn.LPPool2d(2.0, 2)", tg_nn_lp_pool2d(2, TG_SHAPE(2), TG_SCALAR, false), "f:2,3,4,5", 1,
    "LPPool2d(norm_type=2.0, kernel_size=2, stride=None, ceil_mode=False)", "",
    -1.8961516872249784, -4.1132103885691329)
LAYER("nn.LPPool3d(2.0, 2, ceil_mode=True)", tg_nn_lp_pool3d(2, TG_SHAPE(2), TG_SCALAR, true), "f:3,4,3,4", 1,
    "LPPool3d(norm_type=2.0, kernel_size=2, stride=None, ceil_mode=True)", "",
    -5.1381942920891763, -4.6606459991396543)
LAYER("nn.Dropout3d(0.5).eval()", tg_module_train(tg_nn_dropout3d(0.5), false), "f:5,4,2,2,2", 1,
    "Dropout3d(p=0.5, inplace=False)", "",
    -28.796168012547678, -57.729127834162902)
LAYER("nn.AlphaDropout(0.5).eval()", tg_module_train(tg_nn_alpha_dropout(0.5), false), "f:5,4", 1,
    "AlphaDropout(p=0.5, inplace=False)", "",
    -3.3697307926679665, -6.7254130069649616)
LAYER("nn.FeatureAlphaDropout(0.5).eval()", tg_module_train(tg_nn_feature_alpha_dropout(0.5), false), "f:5,4,3", 1,
    "FeatureAlphaDropout(p=0.5, inplace=False)", "",
    -10.925812924989984, -21.519854039508001)
LAYER("nn.ZeroPad1d((1, 2))", tg_nn_zero_pad(TG_SHAPE(1, 2)), "f:2,3,4", 1,
    "ZeroPad1d((1, 2))", "",
    0.069972686146479446, -0.097019268109068468)
LAYER("nn.ZeroPad2d((1, 2, 0, -1))", tg_nn_zero_pad(TG_SHAPE(1, 2, 0, -1)), "f:2,3,4,3", 1,
    "ZeroPad2d((1, 2, 0, -1))", "",
    0.29483470393532685, 0.3707931844771799)
LAYER("nn.ConstantPad3d((1, 2, 0, 1, 1, 0), 3.5)",
    tg_nn_constant_pad(TG_SHAPE(1, 2, 0, 1, 1, 0), 3.5), "f:2,3,2,3,2", 1,
    "ConstantPad3d(padding=(1, 2, 0, 1, 1, 0), value=3.5)", "",
    15.100146754440729, 11.629019904424098)
LAYER("nn.ReflectionPad1d((1, 2))", tg_nn_reflection_pad(TG_SHAPE(1, 2)), "f:2,3,4", 1,
    "ReflectionPad1d((1, 2))", "",
    -0.77352063400708082, -0.49590051175621275)
LAYER("nn.ReflectionPad3d((1, 0, 1, 1, 0, 1))", tg_nn_reflection_pad(TG_SHAPE(1, 0, 1, 1, 0, 1)), "f:1,3,2,3,2", 1,
    "ReflectionPad3d((1, 0, 1, 1, 0, 1))", "",
    -0.1587045025605951, -0.39575019555348917)
LAYER("nn.ReplicationPad2d((1, 3, 0, 2))", tg_nn_replication_pad(TG_SHAPE(1, 3, 0, 2)), "f:2,3,4,3", 1,
    "ReplicationPad2d((1, 3, 0, 2))", "",
    -6.3347983973046054, 0.99619580019804665)
LAYER("nn.CircularPad2d((1, 2, 0, 2))", tg_nn_circular_pad(TG_SHAPE(1, 2, 0, 2)), "f:2,3,4,3", 1,
    "CircularPad2d((1, 2, 0, 2))", "",
    0.71639556946998462, 1.0484567125487574)
LAYER("nn.Upsample(size=(2, 3, 4), mode='trilinear')",
    tg_nn_upsample(TG_SHAPE(2, 3, 4), 0, "trilinear"), "f:1,2,3,2,3", 1,
    "Upsample(size=(2, 3, 4), mode='trilinear')", "",
    0.27638216605293403, 0.42137037789850451)
LAYER("nn.Upsample(scale_factor=1.5, mode='bicubic', align_corners=True)",
    tg_nn_upsample_ex(TG_SCALAR, 1.5, "bicubic", true), "f:1,2,4,3", 1,
    "Upsample(scale_factor=1.5, mode='bicubic')", "",
    3.4676498391335473, 2.9438827665370724)
LAYER("nn.Upsample(size=5, mode='nearest-exact')",
    tg_nn_upsample_ex(TG_SHAPE(5), 0, "nearest-exact", false), "f:1,2,4", 1,
    "Upsample(size=5, mode='nearest-exact')", "",
    1.2509371034788255, -0.91849996127006472)
LAYER("nn.PixelShuffle(2)", tg_nn_pixel_shuffle(2), "f:1,8,2,3", 1,
    "PixelShuffle(upscale_factor=2)", "",
    0.65596183183080958, 1.3156325871216503)
LAYER("nn.PixelUnshuffle(2)", tg_nn_pixel_unshuffle(2), "f:1,2,4,6", 1,
    "PixelUnshuffle(downscale_factor=2)", "",
    0.65596183183079526, 1.3156325871216024)
LAYER("nn.ChannelShuffle(2)", tg_nn_channel_shuffle(2), "f:1,4,2,3", 1,
    "ChannelShuffle(groups=2)", "",
    -0.95100111034122137, -0.92152743950581617)
LAYER("nn.Unfold((2, 3), 1, 1, 2)",
    tg_nn_unfold(TG_SHAPE(2, 3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(2)), "f:2,3,4,5", 1,
    "Unfold(kernel_size=(2, 3), dilation=1, padding=1, stride=2)", "",
    -8.4238114871459615, -9.1436948213136393)
LAYER("nn.Fold((4, 5), 2)",
    tg_nn_fold(TG_SHAPE(4, 5), TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(1)), "f:2,8,12", 1,
    "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)", "",
    -37.209427144492096, -28.720229093194362)
LAYER("nn.LocalResponseNorm(2)", tg_nn_local_response_norm(2, 1e-4, 0.75, 1), "f:2,4,3,3", 1,
    "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)", "",
    -13.30297025944812, -26.329916796987305)
LAYER("nn.Softmin(dim=1)", tg_nn_softmin(1), "f:5,4", 1,
    "Softmin(dim=1)", "",
    0.63975688952699339, 1.2086311041553404)
LAYER("nn.RReLU(0.1, 0.3).eval()", tg_module_train(tg_nn_rrelu(0.1, 0.3), false), "f:5,4", 1,
    "RReLU(lower=0.1, upper=0.3)", "",
    -1.9700703606059209, -3.6204296831338119)
LAYER("nn.Threshold(0.1, 20.0)", tg_nn_threshold(0.1, 20), "f:5,4", 1,
    "Threshold(threshold=0.1, value=20.0)", "",
    35.652717767338615, -2.8441838521760245)
LAYER("nn.Hardshrink(0.25)", tg_nn_hardshrink(0.25), "f:5,4", 1,
    "Hardshrink(0.25)", "",
    -3.1789852885517949, -4.9891520067337689)
LAYER("nn.Softshrink(0.25)", tg_nn_softshrink(0.25), "f:5,4", 1,
    "Softshrink(0.25)", "",
    -2.2988216136554782, -4.9891520067337689)
LAYER("nn.Tanhshrink()", tg_nn_tanhshrink(), "f:5,4", 1,
    "Tanhshrink()", "",
    -0.66313134005660201, -2.2090643441575533)
LAYER("nn.Flatten(1, -1)", tg_nn_flatten(1, -1), "f:5,4,3", 1,
    "Flatten(start_dim=1, end_dim=-1)", "",
    -10.925812924989984, -21.519854039508001)
LAYER("nn.Unflatten(1, (2, 3))", tg_nn_unflatten(1, TG_SHAPE(2, 3)), "f:5,6,2", 1,
    "Unflatten(dim=1, unflattened_size=(2, 3))", "",
    -10.925812924989984, -21.519854039508001)
LAYER("nn.Identity()", tg_nn_identity(), "f:5,4", 1,
    "Identity()", "",
    -3.3697307926679665, -6.7254130069649616)
LAYER("nn.ReLU()", tg_nn_relu(), "f:5,4", 1,
    "ReLU()", "",
    -1.6201552525904095, -2.8441838521760245)
LAYER("nn.LeakyReLU(0.1)", tg_nn_leaky_relu(0.1), "f:5,4", 1,
    "LeakyReLU(negative_slope=0.1)", "",
    -1.7951128065981652, -3.2323067676549186)
LAYER("nn.ELU(1.5)", tg_nn_elu(1.5), "f:5,4", 1,
    "ELU(alpha=1.5)", "",
    -3.371314091402271, -6.3176109504829574)
LAYER("nn.GELU()", tg_nn_gelu(false), "f:5,4", 1,
    "GELU(approximate='none')", "",
    -1.639866132469286, -3.250014896527003)
LAYER("nn.GELU(approximate='tanh')", tg_nn_gelu(true), "f:5,4", 1,
    "GELU(approximate='tanh')", "",
    -1.6398951741298085, -3.2500740630910112)
LAYER("nn.SiLU()", tg_nn_silu(), "f:5,4", 1,
    "SiLU()", "",
    -1.6527635981981101, -3.2769638735760602)
LAYER("nn.Tanh()", tg_nn_tanh(), "f:5,4", 1,
    "Tanh()", "",
    -2.7065994526113641, -4.5163486628074097)
LAYER("nn.Sigmoid()", tg_nn_sigmoid(), "f:5,4", 1,
    "Sigmoid()", "",
    -0.80522516961807655, -1.4951677919733994)
LAYER("nn.LogSigmoid()", tg_nn_logsigmoid(), "f:5,4", 1,
    "LogSigmoid()", "",
    -1.682553793509602, -3.4098315750166055)
LAYER("nn.Mish()", tg_nn_mish(), "f:5,4", 1,
    "Mish()", "",
    -1.9418268142070518, -3.7810477280457868)
LAYER("nn.SELU()", tg_nn_selu(), "f:5,4", 1,
    "SELU()", "",
    -3.7547728570553724, -7.0594733763784188)
LAYER("nn.CELU(0.5)", tg_nn_celu(0.5), "f:5,4", 1,
    "CELU(alpha=0.5)", "",
    -2.4550866073681581, -4.392654754582404)
LAYER("nn.Softsign()", tg_nn_softsign(), "f:5,4", 1,
    "Softsign()", "",
    -1.8127401965630356, -2.8329833279639018)
LAYER("nn.ReLU6()", tg_nn_relu6(), "f:5,4", 1,
    "ReLU6()", "",
    -1.6201552525904095, -2.8441838521760245)
LAYER("nn.Hardtanh(-0.5, 0.25)", tg_nn_hardtanh(-0.5, 0.25), "f:5,4", 1,
    "Hardtanh(min_val=-0.5, max_val=0.25)", "",
    -1.4781571414788757, -1.7362610002311936)
LAYER("nn.Hardswish()", tg_nn_hardswish(), "f:5,4", 1,
    "Hardswish()", "",
    -1.6605280467692716, -3.2935616489583732)
LAYER("nn.GLU(1)", tg_nn_glu(1), "f:5,4", 1,
    "GLU(dim=1)", "",
    -0.06551209040019107, 0.27476035045817038)
LAYER("nn.PReLU()", tg_nn_prelu(1, 0.25), "f:5,4", 1,
    "PReLU(num_parameters=1)", "weight[1]",
    -1.9608136558707914, -4.905632277057288)
LAYER("nn.PReLU(4)", tg_nn_prelu(4, 0.25), "f:5,4,2", 1,
    "PReLU(num_parameters=4)", "weight[4]",
    -4.6711935058014724, -11.875822031415755)
LAYER("nn.Softplus(2.0, 20.0)", tg_nn_softplus(2, 20), "f:5,4", 1,
    "Softplus(beta=2.0, threshold=20.0)", "",
    -1.6655625809262706, -3.2876953053753013)
LAYER("nn.Softmax(-1)", tg_nn_softmax(-1), "f:5,4", 1,
    "Softmax(dim=-1)", "",
    -0.62626276031230721, -1.1402234313455335)
LAYER("nn.LogSoftmax(-1)", tg_nn_log_softmax(-1), "f:5,4", 1,
    "LogSoftmax(dim=-1)", "",
    -2.4580097097991986, -4.7753258273241634)
LAYER("nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))",
    in_sequence(tg_nn_linear(4, 5, true), tg_nn_tanh(), tg_nn_linear(5, 2, true)), "f:3,4", 1,
    "", "0.weight[5,4] 0.bias[5] 2.weight[2,5] 2.bias[2]",
    0.85534423448484742, 1.0303577700344835)
LAYER("nn.RNN(3, 4)", tg_nn_rnn(3, 4, 1), "f:5,2,3", 2,
    "RNN(3, 4)", "weight_ih_l0[4,3] weight_hh_l0[4,4] bias_ih_l0[4] bias_hh_l0[4]",
    -0.13104967076620949, -1.0151646139434465)
LAYER("nn.RNN(3, 4, 2, 'relu', True, True, 0.0, True)",
    tg_nn_rnn_ex(3, 4, 2, "relu", true, true, 0, true), "f:2,5,3 f:4,2,4", 2,
    "RNN(3, 4, num_layers=2, batch_first=True, bidirectional=True)", "weight_ih_l0[4,3] weight_hh_l0[4,4] "
    "bias_ih_l0[4] bias_hh_l0[4] weight_ih_l0_reverse[4,3] weight_hh_l0_reverse[4,4] bias_ih_l0_reverse[4] "
    "bias_hh_l0_reverse[4] weight_ih_l1[4,8] weight_hh_l1[4,4] bias_ih_l1[4] bias_hh_l1[4] "
    "weight_ih_l1_reverse[4,8] weight_hh_l1_reverse[4,4] bias_ih_l1_reverse[4] bias_hh_l1_reverse[4]",
    -2.1672074156570078, -6.3658914671189608)
LAYER("nn.LSTM(3, 4)", tg_nn_lstm(3, 4, 1), "f:5,2,3", 3,
    "LSTM(3, 4)", "weight_ih_l0[16,3] weight_hh_l0[16,4] bias_ih_l0[16] bias_hh_l0[16]",
    0.032648689455522156, 0.056849468960689542)
LAYER("nn.LSTM(3, 4, 2)", tg_nn_lstm(3, 4, 2), "f:5,2,3 f:2,2,4 f:2,2,4", 3,
    "LSTM(3, 4, num_layers=2)", "weight_ih_l0[16,3] weight_hh_l0[16,4] bias_ih_l0[16] bias_hh_l0[16] "
    "weight_ih_l1[16,4] weight_hh_l1[16,4] bias_ih_l1[16] bias_hh_l1[16]",
    -1.4806830573802165, -1.8627309332849156)
LAYER("nn.LSTM(3, 4, 2, False, True, 0.5, True).eval()",
    tg_module_train(tg_nn_lstm_ex(3, 4, 2, false, true, 0.5, true), false), "f:2,5,3 f:4,2,4 f:4,2,4", 3,
    "LSTM(3, 4, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)", "weight_ih_l0[16,3] "
    "weight_hh_l0[16,4] weight_ih_l0_reverse[16,3] weight_hh_l0_reverse[16,4] weight_ih_l1[16,8] "
    "weight_hh_l1[16,4] weight_ih_l1_reverse[16,8] weight_hh_l1_reverse[16,4]",
    -1.5119084202051971, -1.3747714686651094)
LAYER("nn.LSTM(3, 4)", tg_nn_lstm(3, 4, 1), "f:5,3 f:1,4 f:1,4", 3,
    "LSTM(3, 4)", "weight_ih_l0[16,3] weight_hh_l0[16,4] bias_ih_l0[16] bias_hh_l0[16]",
    -0.83745806554433844, -0.38450332850052915)
LAYER("nn.GRU(3, 4)", tg_nn_gru(3, 4, 1), "f:5,2,3", 1,
    "GRU(3, 4)", "weight_ih_l0[12,3] weight_hh_l0[12,4] bias_ih_l0[12] bias_hh_l0[12]",
    0.30820176255678972, -0.38823560419827274)
LAYER("nn.GRU(3, 4, 2, bidirectional=True)", tg_nn_gru_ex(3, 4, 2, true, false, 0, true), "f:5,2,3 f:4,2,4", 2,
    "GRU(3, 4, num_layers=2, bidirectional=True)", "weight_ih_l0[12,3] weight_hh_l0[12,4] bias_ih_l0[12] "
    "bias_hh_l0[12] weight_ih_l0_reverse[12,3] weight_hh_l0_reverse[12,4] bias_ih_l0_reverse[12] "
    "bias_hh_l0_reverse[12] weight_ih_l1[12,8] weight_hh_l1[12,4] bias_ih_l1[12] bias_hh_l1[12] "
    "weight_ih_l1_reverse[12,8] weight_hh_l1_reverse[12,4] bias_ih_l1_reverse[12] bias_hh_l1_reverse[12]",
    -2.1290660500747327, -2.4271231373894544)
LAYER("nn.GRU(3, 4, bias=False)", tg_nn_gru_ex(3, 4, 1, false, false, 0, false), "f:5,3 f:1,4", 2,
    "GRU(3, 4, bias=False)", "weight_ih_l0[12,3] weight_hh_l0[12,4]",
    -0.98568561470696436, -1.6238446853378607)
LAYER("nn.RNN(3, 4)", tg_nn_rnn(3, 4, 1), "f:6,4,3 n:2,6,1,2", 2,
    "RNN(3, 4)", "weight_ih_l0[4,3] weight_hh_l0[4,4] bias_ih_l0[4] bias_hh_l0[4]",
    2.1576336226207582, 3.4151837980256259)
LAYER("nn.RNN(3, 4, 2, 'relu', True, True, 0.0, True)",
    tg_nn_rnn_ex(3, 4, 2, "relu", true, true, 0, true), "f:3,5,3 f:4,3,4 n:1,3,2", 2,
    "RNN(3, 4, num_layers=2, batch_first=True, bidirectional=True)", "weight_ih_l0[4,3] weight_hh_l0[4,4] "
    "bias_ih_l0[4] bias_hh_l0[4] weight_ih_l0_reverse[4,3] weight_hh_l0_reverse[4,4] bias_ih_l0_reverse[4] "
    "bias_hh_l0_reverse[4] weight_ih_l1[4,8] weight_hh_l1[4,4] bias_ih_l1[4] bias_hh_l1[4] "
    "weight_ih_l1_reverse[4,8] weight_hh_l1_reverse[4,4] bias_ih_l1_reverse[4] bias_hh_l1_reverse[4]",
    -0.22369554060140739, -2.8744436357287415)
LAYER("nn.LSTM(3, 4, 2)", tg_nn_lstm(3, 4, 2), "f:5,4,3 f:2,4,4 f:2,4,4 n:5,3,3,1", 3,
    "LSTM(3, 4, num_layers=2)", "weight_ih_l0[16,3] weight_hh_l0[16,4] bias_ih_l0[16] bias_hh_l0[16] "
    "weight_ih_l1[16,4] weight_hh_l1[16,4] bias_ih_l1[16] bias_hh_l1[16]",
    -5.8936869901381863, -7.1879653785620228)
LAYER("nn.LSTM(3, 4, 2, False, True, 0.5, True).eval()",
    tg_module_train(tg_nn_lstm_ex(3, 4, 2, false, true, 0.5, true), false), "f:4,5,3 f:4,4,4 f:4,4,4 n:2,5,1,4", 3,
    "LSTM(3, 4, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)", "weight_ih_l0[16,3] "
    "weight_hh_l0[16,4] weight_ih_l0_reverse[16,3] weight_hh_l0_reverse[16,4] weight_ih_l1[16,8] "
    "weight_hh_l1[16,4] weight_ih_l1_reverse[16,8] weight_hh_l1_reverse[16,4]",
    -2.628784267906485, -1.3892966899197532)
LAYER("nn.GRU(3, 4, 2, bidirectional=True)", tg_nn_gru_ex(3, 4, 2, true, false, 0, true), "f:7,3,3 n:4,5,5", 2,
    "GRU(3, 4, num_layers=2, bidirectional=True)", "weight_ih_l0[12,3] weight_hh_l0[12,4] bias_ih_l0[12] "
    "bias_hh_l0[12] weight_ih_l0_reverse[12,3] weight_hh_l0_reverse[12,4] bias_ih_l0_reverse[12] "
    "bias_hh_l0_reverse[12] weight_ih_l1[12,8] weight_hh_l1[12,4] bias_ih_l1[12] bias_hh_l1[12] "
    "weight_ih_l1_reverse[12,8] weight_hh_l1_reverse[12,4] bias_ih_l1_reverse[12] bias_hh_l1_reverse[12]",
    0.77176193383608349, -2.8678696226316753)
LAYER("nn.GRU(3, 4, bias=False)", tg_nn_gru_ex(3, 4, 1, false, false, 0, false), "f:5,3,3 f:1,3,4 n:2,2,2", 2,
    "GRU(3, 4, bias=False)", "weight_ih_l0[12,3] weight_hh_l0[12,4]",
    -2.7981181920129292, -3.3922157327707811)
LAYER("nn.RNNCell(3, 4)", tg_nn_rnn_cell(3, 4, true, "tanh"), "f:2,3 f:2,4", 1,
    "RNNCell(3, 4)", "weight_ih[4,3] weight_hh[4,4] bias_ih[4] bias_hh[4]",
    0.10966952550737896, -0.29303008180046708)
LAYER("nn.RNNCell(3, 4, False, 'relu')", tg_nn_rnn_cell(3, 4, false, "relu"), "f:3", 1,
    "RNNCell(3, 4, bias=False, nonlinearity=relu)", "weight_ih[4,3] weight_hh[4,4]",
    -0.71812766487304502, -1.6243278665814198)
LAYER("nn.LSTMCell(3, 4)", tg_nn_lstm_cell(3, 4, true), "f:2,3 f:2,4 f:2,4", 2,
    "LSTMCell(3, 4)", "weight_ih[16,3] weight_hh[16,4] bias_ih[16] bias_hh[16]",
    -3.6077819579891308, -4.5631424203788526)
LAYER("nn.LSTMCell(3, 4, bias=False)", tg_nn_lstm_cell(3, 4, false), "f:3 f:4 f:4", 2,
    "LSTMCell(3, 4, bias=False)", "weight_ih[16,3] weight_hh[16,4]",
    -1.1542389336999817, -0.46543116247564748)
LAYER("nn.GRUCell(3, 4)", tg_nn_gru_cell(3, 4, true), "f:2,3", 1,
    "GRUCell(3, 4)", "weight_ih[12,3] weight_hh[12,4] bias_ih[12] bias_hh[12]",
    0.085876806768307945, 0.31400340696222462)
LAYER("nn.GRUCell(3, 4)", tg_nn_gru_cell(3, 4, true), "f:3 f:4", 1,
    "GRUCell(3, 4)", "weight_ih[12,3] weight_hh[12,4] bias_ih[12] bias_hh[12]",
    -1.0153646452562906, -1.7451821375580994)
LAYER("nn.MultiheadAttention(6, 2, batch_first=True)",
    tg_nn_multihead_attention(6, 2, true), "f:3,4,6 f:3,5,6 f:3,5,6", 2,
    "", "in_proj_weight[18,6] in_proj_bias[18] out_proj.weight[6,6] out_proj.bias[6]",
    -1.0221461490915387, -8.049468244015296)
LAYER("nn.MultiheadAttention(6, 3, bias=False, batch_first=True)",
    tg_nn_multihead_attention(6, 3, false), "f:3,4,6 f:3,7,6 f:3,7,6 b:4,7", 2,
    "", "in_proj_weight[18,6] out_proj.weight[6,6]",
    5.9954047870600879, 0.57630305055226771)
LAYER("nn.MultiheadAttention(6, 2, batch_first=True)",
    tg_nn_multihead_attention(6, 2, true), "f:3,4,6 f:3,5,6 f:3,5,6 f:6,4,5", 1,
    "", "in_proj_weight[18,6] in_proj_bias[18] out_proj.weight[6,6] out_proj.bias[6]",
    -1.1532640417353406, -9.3363026156388429)
LAYER("nn.MultiheadAttention(6, 2, kdim=3, vdim=2, batch_first=True)",
    tg_nn_multihead_attention_ex(6, 2, 0, true, 3, 2), "f:4,6 f:7,3 f:7,2 b:2,4,7", 2,
    "", "q_proj_weight[6,6] k_proj_weight[6,3] v_proj_weight[6,2] in_proj_bias[18] out_proj.weight[6,6] "
    "out_proj.bias[6]",
    -0.78317581863651731, 0.20006605033585184)
LAYER("nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)",
    tg_nn_transformer_encoder_layer(6, 2, 8, 0, false, false), "f:3,4,6", 1,
    "", "self_attn.in_proj_weight[18,6] self_attn.in_proj_bias[18] self_attn.out_proj.weight[6,6] "
    "self_attn.out_proj.bias[6] linear1.weight[8,6] linear1.bias[8] linear2.weight[6,8] linear2.bias[6] "
    "norm1.weight[6] norm1.bias[6] norm2.weight[6] norm2.bias[6]",
    5.2011281498115665, -3.0202006486460675)
LAYER("nn.TransformerEncoderLayer(6, 2, 8, 0.1, 'gelu', batch_first=True, norm_first=True).eval()",
    tg_module_train(tg_nn_transformer_encoder_layer(6, 2, 8, 0.1, true, true), false), "f:3,4,6 b:4,4", 1,
    "", "self_attn.in_proj_weight[18,6] self_attn.in_proj_bias[18] self_attn.out_proj.weight[6,6] "
    "self_attn.out_proj.bias[6] linear1.weight[8,6] linear1.bias[8] linear2.weight[6,8] linear2.bias[6] "
    "norm1.weight[6] norm1.bias[6] norm2.weight[6] norm2.bias[6]",
    -15.561045219721423, -45.144573141096998)
LAYER("nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)",
    tg_nn_transformer_encoder_layer(6, 2, 8, 0, false, false), "f:4,6 f:4,4", 1,
    "", "self_attn.in_proj_weight[18,6] self_attn.in_proj_bias[18] self_attn.out_proj.weight[6,6] "
    "self_attn.out_proj.bias[6] linear1.weight[8,6] linear1.bias[8] linear2.weight[6,8] linear2.bias[6] "
    "norm1.weight[6] norm1.bias[6] norm2.weight[6] norm2.bias[6]",
    2.1726481758399827, -1.6874380611103399)
LAYER("nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True)",
    tg_nn_transformer_decoder_layer(6, 2, 8, 0, false, false), "f:3,4,6 f:3,5,6", 1,
    "", "self_attn.in_proj_weight[18,6] self_attn.in_proj_bias[18] self_attn.out_proj.weight[6,6] "
    "self_attn.out_proj.bias[6] multihead_attn.in_proj_weight[18,6] multihead_attn.in_proj_bias[18] "
    "multihead_attn.out_proj.weight[6,6] multihead_attn.out_proj.bias[6] linear1.weight[8,6] linear1.bias[8] "
    "linear2.weight[6,8] linear2.bias[6] norm1.weight[6] norm1.bias[6] norm2.weight[6] norm2.bias[6] "
    "norm3.weight[6] norm3.bias[6]",
    -0.68399966660139877, 0.7286763484669283)
LAYER("nn.TransformerDecoderLayer(6, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True)",
    tg_nn_transformer_decoder_layer(6, 2, 8, 0, true, true), "f:3,4,6 f:3,5,6 b:4,4 f:4,5", 1,
    "", "self_attn.in_proj_weight[18,6] self_attn.in_proj_bias[18] self_attn.out_proj.weight[6,6] "
    "self_attn.out_proj.bias[6] multihead_attn.in_proj_weight[18,6] multihead_attn.in_proj_bias[18] "
    "multihead_attn.out_proj.weight[6,6] multihead_attn.out_proj.bias[6] linear1.weight[8,6] linear1.bias[8] "
    "linear2.weight[6,8] linear2.bias[6] norm1.weight[6] norm1.bias[6] norm2.weight[6] norm2.bias[6] "
    "norm3.weight[6] norm3.bias[6]",
    -14.099560494637197, -36.947244285669939)
LAYER("nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 2)",
    tg_nn_transformer_encoder(tg_nn_transformer_encoder_layer(6, 2, 8, 0, false, false), 2, NULL), "f:3,4,6", 1,
    "", "layers.0.self_attn.in_proj_weight[18,6] layers.0.self_attn.in_proj_bias[18] "
    "layers.0.self_attn.out_proj.weight[6,6] layers.0.self_attn.out_proj.bias[6] layers.0.linear1.weight[8,6] "
    "layers.0.linear1.bias[8] layers.0.linear2.weight[6,8] layers.0.linear2.bias[6] layers.0.norm1.weight[6] "
    "layers.0.norm1.bias[6] layers.0.norm2.weight[6] layers.0.norm2.bias[6] "
    "layers.1.self_attn.in_proj_weight[18,6] layers.1.self_attn.in_proj_bias[18] "
    "layers.1.self_attn.out_proj.weight[6,6] layers.1.self_attn.out_proj.bias[6] layers.1.linear1.weight[8,6] "
    "layers.1.linear1.bias[8] layers.1.linear2.weight[6,8] layers.1.linear2.bias[6] layers.1.norm1.weight[6] "
    "layers.1.norm1.bias[6] layers.1.norm2.weight[6] layers.1.norm2.bias[6]",
    -1.8511158235298208, 3.0563693275349291)
LAYER("nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0., 'gelu', 1e-5, True, True), 3, nn.LayerNorm(6))",
    tg_nn_transformer_encoder(tg_nn_transformer_encoder_layer(6, 2, 8, 0, true, true), 3,
                              tg_nn_layer_norm(TG_SHAPE(6), 1e-5, true)), "f:3,4,6 b:4,4", 1,
    "", "layers.0.self_attn.in_proj_weight[18,6] layers.0.self_attn.in_proj_bias[18] "
    "layers.0.self_attn.out_proj.weight[6,6] layers.0.self_attn.out_proj.bias[6] layers.0.linear1.weight[8,6] "
    "layers.0.linear1.bias[8] layers.0.linear2.weight[6,8] layers.0.linear2.bias[6] layers.0.norm1.weight[6] "
    "layers.0.norm1.bias[6] layers.0.norm2.weight[6] layers.0.norm2.bias[6] "
    "layers.1.self_attn.in_proj_weight[18,6] layers.1.self_attn.in_proj_bias[18] "
    "layers.1.self_attn.out_proj.weight[6,6] layers.1.self_attn.out_proj.bias[6] layers.1.linear1.weight[8,6] "
    "layers.1.linear1.bias[8] layers.1.linear2.weight[6,8] layers.1.linear2.bias[6] layers.1.norm1.weight[6] "
    "layers.1.norm1.bias[6] layers.1.norm2.weight[6] layers.1.norm2.bias[6] "
    "layers.2.self_attn.in_proj_weight[18,6] layers.2.self_attn.in_proj_bias[18] "
    "layers.2.self_attn.out_proj.weight[6,6] layers.2.self_attn.out_proj.bias[6] layers.2.linear1.weight[8,6] "
    "layers.2.linear1.bias[8] layers.2.linear2.weight[6,8] layers.2.linear2.bias[6] layers.2.norm1.weight[6] "
    "layers.2.norm1.bias[6] layers.2.norm2.weight[6] layers.2.norm2.bias[6] norm.weight[6] norm.bias[6]",
    0.33312649153725604, -0.30476620708006474)
LAYER("nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True), 2, nn.LayerNorm(6))",
    tg_nn_transformer_decoder(tg_nn_transformer_decoder_layer(6, 2, 8, 0, false, false), 2,
                              tg_nn_layer_norm(TG_SHAPE(6), 1e-5, true)), "f:3,4,6 f:3,5,6 b:4,4 f:4,5", 1,
    "", "layers.0.self_attn.in_proj_weight[18,6] layers.0.self_attn.in_proj_bias[18] "
    "layers.0.self_attn.out_proj.weight[6,6] layers.0.self_attn.out_proj.bias[6] "
    "layers.0.multihead_attn.in_proj_weight[18,6] layers.0.multihead_attn.in_proj_bias[18] "
    "layers.0.multihead_attn.out_proj.weight[6,6] layers.0.multihead_attn.out_proj.bias[6] "
    "layers.0.linear1.weight[8,6] layers.0.linear1.bias[8] layers.0.linear2.weight[6,8] layers.0.linear2.bias[6] "
    "layers.0.norm1.weight[6] layers.0.norm1.bias[6] layers.0.norm2.weight[6] layers.0.norm2.bias[6] "
    "layers.0.norm3.weight[6] layers.0.norm3.bias[6] layers.1.self_attn.in_proj_weight[18,6] "
    "layers.1.self_attn.in_proj_bias[18] layers.1.self_attn.out_proj.weight[6,6] "
    "layers.1.self_attn.out_proj.bias[6] layers.1.multihead_attn.in_proj_weight[18,6] "
    "layers.1.multihead_attn.in_proj_bias[18] layers.1.multihead_attn.out_proj.weight[6,6] "
    "layers.1.multihead_attn.out_proj.bias[6] layers.1.linear1.weight[8,6] layers.1.linear1.bias[8] "
    "layers.1.linear2.weight[6,8] layers.1.linear2.bias[6] layers.1.norm1.weight[6] layers.1.norm1.bias[6] "
    "layers.1.norm2.weight[6] layers.1.norm2.bias[6] layers.1.norm3.weight[6] layers.1.norm3.bias[6] "
    "norm.weight[6] norm.bias[6]",
    -0.17890338439751419, -0.37844389204852086)
