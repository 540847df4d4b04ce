#ifdef __cplusplus
extern "C" {
#endif
tg_tensor *square_sum(tg_tensor *x);      /* user.c: in the library of main.c */
double private_slope(double at);          /* private.c: d x^2 / d x, in a library of its own */
#ifdef __cplusplus
}
#endif
