//go:build linux

#include "textflag.h"

// The kernel calls it like a C function, on the signal stack.
TEXT nothing<>(SB), NOSPLIT|NOFRAME, $0-0
	RET

GLOBL ·nothingPC(SB), RODATA, $8
DATA ·nothingPC(SB)/8, $nothing<>(SB)
