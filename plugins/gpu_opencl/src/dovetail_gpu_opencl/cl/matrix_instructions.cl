// Instructions of NVIDIA GPUs from sm_80 on (PTX ISA): asynchronous copies to local memory, matrices of 8 x 8 halves out of it,
// and their products. A kernel has a byte array `tile` in local memory, aligned to 128 bytes, whose places these take; EXCHANGE
// follows it.
//
// A fragment of four registers has the matrices whose rows are at the places that items 0 to 7, 8 to 15, 16 to 23 and 24 to 31
// give.
// Tests put other definitions in place of these.
#ifndef MULTIPLY
#define EXCHANGE const uint shared = (uint)(ulong)tile;
#define FENCE asm volatile("membar.gl;" ::: "memory")
#define SUB_GROUP_BARRIER asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
// Copies 16 or 8 bytes, or puts zeros in their place.
#define COPY(place, from, there)                                                          \
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared + (uint)(place)), \
               "l"((ulong)(from)), "r"((there) ? 16 : 0)                                  \
               : "memory")
#define COPY_HALF(place, from, there)                                                    \
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared + (uint)(place)), \
               "l"((ulong)(from)), "r"((there) ? 8 : 0)                                  \
               : "memory")
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT_FOR(groups) asm volatile("cp.async.wait_group " #groups ";" ::: "memory")
#define FRAGMENTS(r, place)                                                                      \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"                \
               : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                          \
               : "r"(shared + (uint)(place))                                                     \
               : "memory")
// As FRAGMENTS, of the transposed matrices of 8 x 8.
#define TRANSPOSED(r, place)                                                                     \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"          \
               : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                          \
               : "r"(shared + (uint)(place))                                                     \
               : "memory")
// The value of the item whose number differs in the bits of `distance`.
#define SWAP(r, v, distance) asm volatile("shfl.sync.bfly.b32 %0, %1, " #distance ", 0x1f, 0xffffffff;" : "=f"(r) : "f"(v))
#ifdef FORMAT
#define MULTIPLY(c, a, b)                                                                              \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." FORMAT ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                                         \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#elif defined(FLOATS)
// The nearest TF32 number of the float whose bits a word has.
#define ROUND(word) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(as_float(word)))
#define MULTIPLY(c, a, b)                                                                                                    \
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                                               \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#else
#ifdef BFLOATS
#define HALF_FORMAT "bf16"
#else
#define HALF_FORMAT "f16"
#endif
#define MULTIPLY(c, a, b)                                                                                                     \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." HALF_FORMAT "." HALF_FORMAT ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                                                \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#endif
#endif
