//go:build linux

#include "textflag.h"

// The kernel calls it as a C function, on the stack of signals.
TEXT nothing<>(SB), NOSPLIT|NOFRAME, $0-0
	RET

GLOBL ·nothingPC(SB), RODATA, $8
DATA ·nothingPC(SB)/8, $nothing<>(SB)
