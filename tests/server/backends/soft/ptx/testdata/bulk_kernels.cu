// The kernels of bulk_copy_test.cc. The build of the tests compiles them to PTX.
#include <cuda.h>

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__

DEVICE unsigned Shared(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
DEVICE unsigned InBlock(unsigned address, unsigned rank) {
  unsigned mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
DEVICE unsigned Rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE unsigned Blocks() {
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
DEVICE void SyncCluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
DEVICE void Init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
DEVICE void Expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
DEVICE void Wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, 1000;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Fetches `bytes` bytes in two halves, doubles them, and stores them.
KERNEL bulk_round_trip(const int* in, int* out, unsigned bytes) {
  extern __shared__ __align__(128) int tile[];
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned half = bytes / 32 * 16;
  if (threadIdx.x == 0) {
    Init(Shared(&barrier), 1);
    // The bytes of the first half arrive before they are expected.
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(Shared(tile)),
        "l"(in), "r"(half), "r"(Shared(&barrier))
        : "memory");
    Expect(Shared(&barrier), bytes);
    asm volatile(
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            Shared(tile) + half),
        "l"(in + half / 4), "r"(bytes - half), "r"(Shared(&barrier))
        : "memory");
  }
  __syncthreads();
  Wait(Shared(&barrier), 0);
  for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x) tile[i] *= 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out),
                 "r"(Shared(tile)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// A bulk load with any address and size.
KERNEL bulk_load(const char* from, unsigned offset, unsigned bytes) {
  __shared__ __align__(128) char tile[1024];
  __shared__ __align__(8) unsigned long long barrier;
  Init(Shared(&barrier), 1);
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(Shared(tile) + offset),
      "l"(from), "r"(bytes), "r"(Shared(&barrier))
      : "memory");
}

#define REDUCE(name, op, type)                                                                   \
  KERNEL name(char* out, const int4* values, unsigned bytes) {                                   \
    extern __shared__ __align__(128) int4 staged[];                                              \
    for (unsigned i = threadIdx.x; i < bytes / 16; i += blockDim.x) staged[i] = values[i];       \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                 \
    __syncthreads();                                                                             \
    if (threadIdx.x != 0) return;                                                                \
    asm volatile(                                                                                \
        "cp.reduce.async.bulk.global.shared::cta.bulk_group." op "." type                        \
        " [%0], [%1], %2;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(out), \
        "r"(Shared(staged)), "r"(bytes)                                                          \
        : "memory");                                                                             \
  }
REDUCE(bulk_add_u32, "add", "u32")
REDUCE(bulk_add_u64, "add", "u64")
REDUCE(bulk_add_f32, "add", "f32")
REDUCE(bulk_add_f16, "add.noftz", "f16")
REDUCE(bulk_min_s32, "min", "s32")
REDUCE(bulk_max_s64, "max", "s64")
REDUCE(bulk_inc_u32, "inc", "u32")
REDUCE(bulk_and_b32, "and", "b32")
REDUCE(bulk_xor_b64, "xor", "b64")

// Each block of a cluster sends its row to the next block, which adds it to its own.
KERNEL bulk_ring(unsigned* out) {
  __shared__ __align__(128) unsigned own[32], received[32];
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned next = (Rank() + 1) % Blocks();
  own[threadIdx.x] = Rank() * 100 + threadIdx.x;
  received[threadIdx.x] = 1;
  if (threadIdx.x == 0) {
    Init(Shared(&barrier), 1);
    Expect(Shared(&barrier), 2 * sizeof(own));
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  SyncCluster();
  if (threadIdx.x == 0) {
    const unsigned to = InBlock(Shared(received), next), done = InBlock(Shared(&barrier), next);
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "r"(Shared(own)), "r"(static_cast<unsigned>(sizeof own)), "r"(done)
        : "memory");
    asm volatile(
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        "[%0], [%1], %2, [%3];" ::"r"(to),
        "r"(Shared(own)), "r"(static_cast<unsigned>(sizeof own)), "r"(done)
        : "memory");
  }
  Wait(Shared(&barrier), 0);
  out[blockIdx.x * 32 + threadIdx.x] = received[threadIdx.x];
  SyncCluster();
}

// The first block of a cluster fetches a row for those that the mask names.
KERNEL bulk_multicast(const unsigned* in, unsigned* out, unsigned mask) {
  __shared__ __align__(128) unsigned row[32];
  __shared__ __align__(8) unsigned long long barrier;
  row[threadIdx.x] = 7;
  if (threadIdx.x == 0) {
    Init(Shared(&barrier), 1);
    Expect(Shared(&barrier), (mask >> Rank() & 1) != 0 ? sizeof(row) : 0);
  }
  SyncCluster();
  if (threadIdx.x == 0 && Rank() == 0) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(Shared(row)),
        "l"(in), "r"(static_cast<unsigned>(sizeof row)), "r"(Shared(&barrier)),
        "h"(static_cast<unsigned short>(mask))
        : "memory");
  }
  Wait(Shared(&barrier), 0);
  out[blockIdx.x * 32 + threadIdx.x] = row[threadIdx.x];
  SyncCluster();
}

// Each thread stores to the next block and adds to the block after it.
KERNEL async_stores(unsigned* out) {
  __shared__ __align__(16) unsigned stored[64], sum;
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned next = (Rank() + 1) % Blocks(), other = (Rank() + 2) % Blocks();
  if (threadIdx.x == 0) {
    sum = 0;
    Init(Shared(&barrier), 1);
    Expect(Shared(&barrier), 32 * (8 + 4));
  }
  SyncCluster();
  const unsigned value = Rank() * 1000 + threadIdx.x;
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
          "r"(InBlock(Shared(stored + 2 * threadIdx.x), next)),
      "r"(value), "r"(~value), "r"(InBlock(Shared(&barrier), next))
      : "memory");
  asm volatile(
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, "
      "[%2];" ::"r"(InBlock(Shared(&sum), other)),
      "r"(value), "r"(InBlock(Shared(&barrier), other))
      : "memory");
  Wait(Shared(&barrier), 0);
  for (unsigned i = threadIdx.x; i < 64; i += 32) out[blockIdx.x * 65 + i] = stored[i];
  if (threadIdx.x == 0) out[blockIdx.x * 65 + 64] = sum;
  SyncCluster();
}

#define LOAD_BOX(rank, coordinates)                                                               \
  asm volatile("cp.async.bulk.tensor." #rank                                                      \
               "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "                \
               "[%1, " coordinates "], [%2];" ::"r"(to),                                          \
               "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]) \
               : "memory")
#define STORE_BOX(rank, coordinates)                                                           \
  asm volatile("cp.async.bulk.tensor." #rank                                                   \
               "d.global.shared::cta.tile.bulk_group [%1, " coordinates                        \
               "], [%0];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"r"(to), \
               "l"(map), "r"(0), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])    \
               : "memory")

struct Place {
  int rank;
  int at[5];
};

// Fetches a box. Writes the shared memory and whether `bytes` bytes arrived to `out`.
KERNEL tensor_load(const __grid_constant__ CUtensorMap tensor, Place place, unsigned bytes,
                   unsigned* out, unsigned words) {
  extern __shared__ __align__(1024) unsigned box[];
  __shared__ __align__(8) unsigned long long storage;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) box[i] = 0xeeeeeeee;
  const unsigned barrier = Shared(&storage), to = Shared(box);
  const int(&at)[5] = place.at;
  const CUtensorMap* const map = &tensor;
  __syncthreads();
  if (threadIdx.x == 0) {
    Init(barrier, 1);
    Expect(barrier, bytes);
    switch (place.rank) {
      case 1:
        LOAD_BOX(1, "{%3}");
        break;
      case 2:
        LOAD_BOX(2, "{%3, %4}");
        break;
      case 3:
        LOAD_BOX(3, "{%3, %4, %5}");
        break;
      case 4:
        LOAD_BOX(4, "{%3, %4, %5, %6}");
        break;
      case 5:
        LOAD_BOX(5, "{%3, %4, %5, %6, %7}");
        break;
    }
  }
  __syncthreads();
  unsigned done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier)
      : "memory");
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) out[i] = box[i];
  if (threadIdx.x == 0) out[words] = done;
}

// Stores a box.
KERNEL tensor_store(const __grid_constant__ CUtensorMap tensor, Place place, const unsigned* in,
                    unsigned words) {
  extern __shared__ __align__(1024) unsigned box[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) box[i] = in[i];
  const unsigned to = Shared(box);
  const int(&at)[5] = place.at;
  const CUtensorMap* const map = &tensor;
  __syncthreads();
  if (threadIdx.x != 0) return;
  switch (place.rank) {
    case 1:
      STORE_BOX(1, "{%3}");
      break;
    case 2:
      STORE_BOX(2, "{%3, %4}");
      break;
    case 3:
      STORE_BOX(3, "{%3, %4, %5}");
      break;
    case 4:
      STORE_BOX(4, "{%3, %4, %5, %6}");
      break;
    case 5:
      STORE_BOX(5, "{%3, %4, %5, %6, %7}");
      break;
  }
}

// Adds a box of two dimensions to a tensor.
KERNEL tensor_add(const __grid_constant__ CUtensorMap tensor, int x, int y, const unsigned* in,
                  unsigned words) {
  extern __shared__ __align__(1024) unsigned box[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) box[i] = in[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], "
      "[%3];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(&tensor),
      "r"(x), "r"(y), "r"(Shared(box))
      : "memory");
}

// stmatrix, ldmatrix and movmatrix: out gets what was stored in shared memory, the matrices loaded
// again, and a transposed one.
KERNEL matrices(const unsigned* in, unsigned* out) {
  __shared__ __align__(16) unsigned plain[128], turned[128];
  const unsigned lane = threadIdx.x;
  unsigned r[4], back[4];
  for (int i = 0; i < 4; ++i) r[i] = in[32 * i + lane];
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   Shared(plain + 4 * lane)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   Shared(turned + 4 * lane)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(back[0]), "=r"(back[1]), "=r"(back[2]), "=r"(back[3])
               : "r"(Shared(turned + 4 * lane))
               : "memory");
  unsigned moved;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(r[0]));
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    out[32 * i + lane] = plain[32 * i + lane];
    out[128 + 32 * i + lane] = back[i];
  }
  out[256 + lane] = moved;
}
