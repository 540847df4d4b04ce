/* Macros that system headers define, as nonsense: tensorgrad.h and its implementation must not use these names.  Beside each
 * group the header that has them.  Function-like ones are function-like here. */

/* windows.h, rpcndr.h, windef.h, wingdi.h, winuser.h */
#define near 1 +
#define far 1 +
#define small 1 +
#define hyper 1 +
#define pascal 1 +
#define cdecl 1 +
#define interface 1 +
#define IN 1 +
#define OUT 1 +
#define OPTIONAL 1 +
#define CONST 1 +
#define VOID 1 +
#define TRUE 1 +
#define FALSE 1 +
#define ERROR 1 +
#define DELETE 1 +
#define IGNORE 1 +
#define INPUT 1 +
#define CALLBACK 1 +
#define WINAPI 1 +
#define STRICT 1 +
#define RELATIVE 1 +
#define ABSOLUTE 1 +
#define DIFFERENCE 1 +
#define TRANSPARENT 1 +
#define OPAQUE 1 +
#define NO_ERROR 1 +
#define min(a, b) 1 +
#define max(a, b) 1 +

/* complex.h, curses.h, termios.h, sys/sysmacros.h */
#define I 1 +
#define complex 1 +
#define imaginary 1 +
#define OK 1 +
#define ERR 1 +
#define ECHO 1 +
#define B0 1 +
#define B50 1 +
#define major(x) 1 +
#define minor(x) 1 +
#define makedev(x, y) 1 +
#ifndef __cplusplus /* whose own headers have functions of these names */
#define timeout(x) 1 +
#define move(x, y) 1 +
#define clear() 1 +
#define refresh() 1 +
#endif

/* X11/X.h, X11/Xlib.h */
#define None 1 +
#define Bool 1 +
#define Status 1 +
#define True 1 +
#define False 1 +
#define Success 1 +
#define Always 1 +
#define Below 1 +
#define Above 1 +
#define Complex 1 +
#define Convex 1 +

/* AssertMacros.h of macOS, R.h, Arduino.h, perl.h, ruby.h */
#define check(x) 1 +
#define verify(x) 1 +
#define require(x, y) 1 +
#define length Rf_length
#define error Rf_error
#define warning Rf_warning
#define HIGH 1 +
#define LOW 1 +
#define OUTPUT 1 +
#define DEFAULT 1 +
#define PI 1 +
#define bit(x) 1 +
#define constrain(x, a, b) 1 +
#define sq(x) 1 +
#define word(x) 1 +

/* what compilers define for Unix systems, and programs for themselves */
#define linux 1 +
#define unix 1 +
#define i386 1 +
#define N 1 +
#define M 1 +
#define K 1 +
#define T 1 +
#define EPS 1 +
#define SIZE 1 +
#define LENGTH 1 +
#define COUNT 1 +
#define print(x) 1 +
#ifndef __cplusplus
#define swap(a, b) 1 +
#endif
