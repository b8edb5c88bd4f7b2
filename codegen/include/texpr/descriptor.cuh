#line 2 "/texpr/include/texpr/descriptor.cuh"
// Where wgmma finds an operand in shared memory. A tile of kRows rows lies in panels of kSwizzle bytes of each row (16:
// not swizzled), a panel its rows one after another; within it the number of the 16-byte chunk is XORed with bits 7 and
// up of the address, as TMA writes it. The tile begins at a multiple of 8 * kSwizzle bytes (1024 for 128).
#pragma once
#include "texpr/here.cuh"
#include "texpr/kernel.cuh"

namespace tx {

// Which dimension of an operand is contiguous: its rows of k, or the rows of a (columns of b) of one k.
enum class Major { kK, kOuter };

// The 64 bits of PTX's matrix descriptor: where an operand begins, two strides and the swizzle.
template <class T, Major kMajor>
struct MatrixDescriptor {
  u64 bits;
};

// A tile in shared memory as an operand: kMajor kK, tile[m or n][k]; kOuter, tile[k][m or n].
template <class T, Major kMajor, int kRows, int kSwizzle = 128>
class MatrixTile {
  static_assert(sizeof(T) == 2 || kMajor == Major::kK, "operands of 8 or 32 bits are contiguous along k");
  static_assert(kSwizzle == 16 || kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128, "panels are 16 to 128 bytes");
  static_assert(kRows % 8 == 0, "rows come in eights");

 public:
  static constexpr int kPanel = kSwizzle / static_cast<int>(sizeof(T));  // columns of a panel
  static constexpr int kPanelBytes = kRows * kSwizzle;

  TX_FN explicit MatrixTile(const Shared<T>& tile) : address_(shared_offset(tile)) {}

  // The operand whose corner is this element: row a multiple of 8, column of whole chunks of 16 bytes.
  TX_FN MatrixDescriptor<T, kMajor> at(int row, int column) const {
    const u32 begin = address_ + static_cast<u32>(column / kPanel * kPanelBytes + row * kSwizzle) +
                      static_cast<u32>(column % kPanel) * static_cast<u32>(sizeof(T));
    return {kForm | (begin & 0x3ffff) >> 4};
  }

 private:
  // Between groups of 8 rows; and between panels. Without a swizzle the two change places along k.
  static constexpr u64 kRowGroup = 8 * kSwizzle, kNextPanel = kPanelBytes;
  static constexpr bool kExchanged = kSwizzle == 16 && kMajor == Major::kOuter;
  static constexpr u64 kLeading = kExchanged ? kRowGroup : kNextPanel, kStride = kExchanged ? kNextPanel : kRowGroup;
  static constexpr u64 kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3 : 0;
  static constexpr u64 kForm = (kLeading >> 4 & 0x3fff) << 16 | (kStride >> 4 & 0x3fff) << 32 | kMode << 62;

#if defined(TX_HOST)
  static u32 shared_offset(const Shared<T>& tile) {
    return static_cast<u32>(reinterpret_cast<u8*>(tile.address(0)) - host::machine.shared);
  }
#else
  static TX_FN u32 shared_offset(const Shared<T>& tile) {
    return static_cast<u32>(__cvta_generic_to_shared(tile.address(0)));
  }
#endif
  u32 address_;
};

}  // namespace tx
