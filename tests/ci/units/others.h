/* Headers of the system and of C++, as many as there are, whose macros and names meet those of the library. */
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <time.h>
#ifdef __cplusplus
#include <algorithm>
#include <complex>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>
#else
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
