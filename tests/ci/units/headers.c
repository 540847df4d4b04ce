/* The library behind headers of the system, as many as there are: none of their macros is a name of the library. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <time.h>
#ifndef __cplusplus
#include <complex.h>
#include <iso646.h>
#endif
#ifdef _WIN32
#include <winsock2.h>
#include <windows.h>
#include <objbase.h>
#include <commctrl.h>
#else
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#endif
#ifdef __has_include
#if __has_include(<sys/sysmacros.h>)
#include <sys/sysmacros.h>
#endif
#if __has_include(<curses.h>)
#include <curses.h>
#endif
#if __has_include(<X11/Xlib.h>)
#include <X11/Xlib.h>
#endif
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"

int main(void)
{
    TG_SCOPE;
    return tg_print(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(2)))) != TG_OK;
}
