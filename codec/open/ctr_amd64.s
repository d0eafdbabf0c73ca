#include "textflag.h"

// FIPS 197 §5.2 with Nk = 8. X0 and X2 are the last two round keys. An even round key is the one
// two before, each of its words added to those after it, plus RotWord(SubWord(last word)) + Rcon; an
// odd one lacks the rotation and the constant.
#define SPREAD(key, t) \
	MOVO   key, t  \
	PSLLDQ $4, t   \
	PXOR   t, key  \
	PSLLDQ $4, t   \
	PXOR   t, key  \
	PSLLDQ $4, t   \
	PXOR   t, key

#define EVEN(rcon, offset) \
	AESKEYGENASSIST $rcon, X2, X1 \
	PSHUFD $0xff, X1, X1          \
	SPREAD(X0, X3)                \
	PXOR   X1, X0                 \
	MOVUPS X0, offset(AX)

#define ODD(offset) \
	AESKEYGENASSIST $0, X0, X1 \
	PSHUFD $0xaa, X1, X1       \
	SPREAD(X2, X3)             \
	PXOR   X1, X2              \
	MOVUPS X2, offset(AX)

// func expandKey256(keys *[240]byte, key *[32]byte)
TEXT ·expandKey256(SB), NOSPLIT, $0-16
	MOVQ   keys+0(FP), AX
	MOVQ   key+8(FP), BX
	MOVUPS (BX), X0
	MOVUPS 16(BX), X2
	MOVUPS X0, (AX)
	MOVUPS X2, 16(AX)
	EVEN(0x01, 32)
	ODD(48)
	EVEN(0x02, 64)
	ODD(80)
	EVEN(0x04, 96)
	ODD(112)
	EVEN(0x08, 128)
	ODD(144)
	EVEN(0x10, 160)
	ODD(176)
	EVEN(0x20, 192)
	ODD(208)
	EVEN(0x40, 224)
	PXOR   X0, X0
	PXOR   X1, X1
	PXOR   X2, X2
	PXOR   X3, X3
	RET

// The next counter block: R10 is the upper half in memory order, R9 the lower one as a number.
#define COUNTER(block) \
	MOVQ   R9, R11      \
	BSWAPQ R11          \
	MOVQ   R10, block   \
	PINSRQ $1, R11, block \
	INCQ   R9

#define EACH(op) \
	op X8, X0 \
	op X8, X1 \
	op X8, X2 \
	op X8, X3 \
	op X8, X4 \
	op X8, X5 \
	op X8, X6 \
	op X8, X7

#define ROUND(offset) \
	MOVUPS offset(AX), X8 \
	EACH(AESENC)

#define OUT(block, offset) \
	MOVUPS offset(SI), X8 \
	PXOR   X8, block      \
	MOVUPS block, offset(DI)

// func xorBlocks(keys *[240]byte, dst, src *byte, blocks int, hi, lo uint64)
TEXT ·xorBlocks(SB), NOSPLIT, $0-48
	MOVQ   keys+0(FP), AX
	MOVQ   dst+8(FP), DI
	MOVQ   src+16(FP), SI
	MOVQ   blocks+24(FP), CX
	MOVQ   hi+32(FP), R10
	MOVQ   lo+40(FP), R9
	BSWAPQ R10

eight:
	CMPQ CX, $8
	JLT  one
	COUNTER(X0)
	COUNTER(X1)
	COUNTER(X2)
	COUNTER(X3)
	COUNTER(X4)
	COUNTER(X5)
	COUNTER(X6)
	COUNTER(X7)
	MOVUPS (AX), X8
	EACH(PXOR)
	ROUND(16)
	ROUND(32)
	ROUND(48)
	ROUND(64)
	ROUND(80)
	ROUND(96)
	ROUND(112)
	ROUND(128)
	ROUND(144)
	ROUND(160)
	ROUND(176)
	ROUND(192)
	ROUND(208)
	MOVUPS 224(AX), X8
	EACH(AESENCLAST)
	OUT(X0, 0)
	OUT(X1, 16)
	OUT(X2, 32)
	OUT(X3, 48)
	OUT(X4, 64)
	OUT(X5, 80)
	OUT(X6, 96)
	OUT(X7, 112)
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $8, CX
	JMP  eight

one:
	TESTQ CX, CX
	JZ    done
	COUNTER(X0)
	MOVUPS (AX), X8
	PXOR   X8, X0
	MOVUPS 16(AX), X8
	AESENC X8, X0
	MOVUPS 32(AX), X8
	AESENC X8, X0
	MOVUPS 48(AX), X8
	AESENC X8, X0
	MOVUPS 64(AX), X8
	AESENC X8, X0
	MOVUPS 80(AX), X8
	AESENC X8, X0
	MOVUPS 96(AX), X8
	AESENC X8, X0
	MOVUPS 112(AX), X8
	AESENC X8, X0
	MOVUPS 128(AX), X8
	AESENC X8, X0
	MOVUPS 144(AX), X8
	AESENC X8, X0
	MOVUPS 160(AX), X8
	AESENC X8, X0
	MOVUPS 176(AX), X8
	AESENC X8, X0
	MOVUPS 192(AX), X8
	AESENC X8, X0
	MOVUPS 208(AX), X8
	AESENC X8, X0
	MOVUPS 224(AX), X8
	AESENCLAST X8, X0
	OUT(X0, 0)
	ADDQ $16, SI
	ADDQ $16, DI
	DECQ CX
	JMP  one

done:
	RET
