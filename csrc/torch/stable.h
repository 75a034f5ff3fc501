/* torch's stable C functions that lowrank.cpp calls, and the few C++ classes over them that it works with.
 *
 * Room: torch (uses the C++ library alone). These are declarations of our own, so that no torch is needed to build: the functions
 * are found in the libtorch_cpu.so of the process that loads the library. All of them are in torch 2.10 and later.
 * Values: each argument and result of an operator is passed to torch as a uint64_t. A number is in its low bytes. A tensor or list
 * is a handle, which the receiver then owns. None is 0. A device has its kind in the upper 32 bits and its index in the lower 32.
 * An optional argument that is present is a pointer made by `new`, which torch deletes.
 * Errors: std::runtime_error; torch itself has printed its own sentence by then.
 */
#ifndef HV_TORCH_STABLE_H
#define HV_TORCH_STABLE_H

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
struct AtenTensorOpaque;
struct StableListOpaque;
struct TorchLibraryOpaque;

int32_t aoti_torch_device_type_cpu(void);
int32_t aoti_torch_dtype_float16(void);
int32_t aoti_torch_dtype_bfloat16(void);
int32_t aoti_torch_dtype_float32(void);
int32_t aoti_torch_dtype_float64(void);
int32_t aoti_torch_dtype_int64(void);
int32_t aoti_torch_memory_format_contiguous_format(void);

/* 0: it went well. */
int32_t aoti_torch_new_tensor_handle(AtenTensorOpaque *tensor, AtenTensorOpaque **out);
int32_t aoti_torch_delete_tensor_object(AtenTensorOpaque *tensor);
int32_t aoti_torch_get_dim(AtenTensorOpaque *tensor, int64_t *out);
int32_t aoti_torch_get_numel(AtenTensorOpaque *tensor, int64_t *out);
int32_t aoti_torch_get_size(AtenTensorOpaque *tensor, int64_t dim, int64_t *out);
int32_t aoti_torch_get_dtype(AtenTensorOpaque *tensor, int32_t *out);
int32_t aoti_torch_get_device_type(AtenTensorOpaque *tensor, int32_t *out);
int32_t aoti_torch_get_device_index(AtenTensorOpaque *tensor, int32_t *out);
int32_t aoti_torch_is_contiguous(AtenTensorOpaque *tensor, bool *out);
int32_t torch_get_mutable_data_ptr(AtenTensorOpaque *tensor, void **out);
int32_t aoti_torch_aten_fill__Scalar(AtenTensorOpaque *self, double value);
int32_t aoti_torch_aten_narrow(AtenTensorOpaque *self, int64_t dim, int64_t start, int64_t length, AtenTensorOpaque **out);
int32_t aoti_torch_aten_subtract_Tensor(AtenTensorOpaque *self, AtenTensorOpaque *other, double alpha, AtenTensorOpaque **out);

int32_t torch_new_list_reserve_size(size_t size, StableListOpaque **out);
int32_t torch_list_push_back(StableListOpaque *list, uint64_t value);
int32_t torch_list_size(StableListOpaque *list, size_t *out);
int32_t torch_list_get_item(StableListOpaque *list, size_t index, uint64_t *out);
int32_t torch_delete_list(StableListOpaque *list);

int32_t torch_call_dispatcher(const char *name, const char *overload, uint64_t *stack, uint64_t version);
int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t grain, void (*work)(int64_t, int64_t, void *), void *arg);

int32_t aoti_torch_library_init_def(const char *space, const char *file, uint32_t line, TorchLibraryOpaque **out);
int32_t aoti_torch_library_init_impl(const char *space, const char *key, const char *file, uint32_t line, TorchLibraryOpaque **out);
int32_t aoti_torch_library_def(TorchLibraryOpaque *library, const char *schema);
int32_t torch_library_impl(TorchLibraryOpaque *library, const char *name, void (*boxed)(uint64_t *, uint64_t, uint64_t),
                           uint64_t version);
int32_t aoti_torch_delete_library_object(TorchLibraryOpaque *library);
}

namespace stable {

constexpr uint64_t abi = uint64_t(2) << 56 | uint64_t(10) << 48; /* the schemas of torch 2.10 are meant */

inline void must(int32_t code, const char *what) {
  if (code)
    throw std::runtime_error(std::string(what) + " failed");
}

/* A tensor of torch's: copies share one handle. */
class Tensor {
public:
  Tensor() = default;
  explicit Tensor(AtenTensorOpaque *owned)
      : handle(owned, [](AtenTensorOpaque *one) { (void)aoti_torch_delete_tensor_object(one); }) {
  }
  AtenTensorOpaque *get() const {
    return handle.get();
  }
  int64_t dim() const {
    return asked<int64_t>(aoti_torch_get_dim, "asking for a tensor's dimensions");
  }
  int64_t numel() const {
    return asked<int64_t>(aoti_torch_get_numel, "asking for a tensor's size");
  }
  int64_t size(int64_t at) const {
    int64_t out = 0;
    must(aoti_torch_get_size(get(), at, &out), "asking for a tensor's shape");
    return out;
  }
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < dim(); i++)
      out.push_back(size(i));
    return out;
  }
  int32_t dtype() const {
    return asked<int32_t>(aoti_torch_get_dtype, "asking for a tensor's dtype");
  }
  std::pair<int32_t, int32_t> device() const {
    return {asked<int32_t>(aoti_torch_get_device_type, "asking for a tensor's device"),
            asked<int32_t>(aoti_torch_get_device_index, "asking for a tensor's device")};
  }
  bool is_cpu() const {
    return device().first == aoti_torch_device_type_cpu();
  }
  bool is_contiguous() const {
    return asked<bool>(aoti_torch_is_contiguous, "asking how a tensor lies");
  }
  void *data() const {
    return asked<void *>(torch_get_mutable_data_ptr, "asking where a tensor lies");
  }

private:
  std::shared_ptr<AtenTensorOpaque> handle;

  template <typename T> T asked(int32_t (*question)(AtenTensorOpaque *, T *), const char *what) const {
    T out{};
    must(question(get(), &out), what);
    return out;
  }
};

/* ---- values that are passed to torch and back, as uint64_t ---- */

/* Owns a list's handle until `release`. */
using List = std::unique_ptr<StableListOpaque, int32_t (*)(StableListOpaque *)>;

inline uint64_t value(std::nullptr_t) {
  return 0;
}
inline uint64_t value(bool x) {
  return x;
}
inline uint64_t value(int64_t x) {
  return uint64_t(x);
}
inline uint64_t value(int32_t x) { /* a dtype, a memory format */
  return uint32_t(x);
}
inline uint64_t value(const Tensor &x) {
  AtenTensorOpaque *own = nullptr;
  must(aoti_torch_new_tensor_handle(x.get(), &own), "borrowing a tensor");
  return reinterpret_cast<uint64_t>(own);
}
template <typename T> uint64_t value(const std::vector<T> &x) {
  StableListOpaque *made = nullptr;
  must(torch_new_list_reserve_size(x.size(), &made), "making a list");
  List list(made, torch_delete_list);
  for (const T &one : x)
    must(torch_list_push_back(made, value(one)), "filling a list");
  return reinterpret_cast<uint64_t>(list.release());
}
/* An optional argument that is present. The pointer is torch's. */
inline uint64_t some(uint64_t x) {
  return reinterpret_cast<uint64_t>(new uint64_t(x));
}

template <typename T> struct Take; /* converts a uint64_t back; a handle in it then belongs to the caller */
template <> struct Take<bool> {
  static bool from(uint64_t x) {
    return (x & 0xff) != 0;
  }
};
template <> struct Take<int64_t> {
  static int64_t from(uint64_t x) {
    return int64_t(x);
  }
};
template <> struct Take<double> {
  static double from(uint64_t x) {
    double out;
    std::memcpy(&out, &x, sizeof out);
    return out;
  }
};
template <> struct Take<Tensor> {
  static Tensor from(uint64_t x) {
    return Tensor(reinterpret_cast<AtenTensorOpaque *>(x));
  }
};
template <typename T> struct Take<std::vector<T>> {
  static std::vector<T> from(uint64_t x) {
    List list(reinterpret_cast<StableListOpaque *>(x), torch_delete_list);
    size_t n = 0;
    must(torch_list_size(list.get(), &n), "reading a list");
    std::vector<T> out;
    for (size_t i = 0; i < n; i++) {
      uint64_t one = 0;
      must(torch_list_get_item(list.get(), i, &one), "reading a list");
      out.push_back(Take<T>::from(one));
    }
    return out;
  }
};

/* ---- operators of ATen's ---- */

/* Calls one; the first of its results, a tensor. */
template <typename... Values> Tensor call(const char *name, const char *overload, Values... values) {
  uint64_t stack[] = {values...};
  must(torch_call_dispatcher(name, overload, stack, abi), name);
  return Take<Tensor>::from(stack[0]);
}

inline Tensor subtract(const Tensor &a, const Tensor &b, double times = 1.0) {
  AtenTensorOpaque *out = nullptr;
  must(aoti_torch_aten_subtract_Tensor(a.get(), b.get(), times, &out), "aten::subtract");
  return Tensor(out);
}
inline Tensor narrow(const Tensor &a, int64_t dim, int64_t start, int64_t length) {
  AtenTensorOpaque *out = nullptr;
  must(aoti_torch_aten_narrow(a.get(), dim, start, length, &out), "aten::narrow");
  return Tensor(out);
}
inline void fill_(const Tensor &a, double x) {
  must(aoti_torch_aten_fill__Scalar(a.get(), x), "aten::fill_");
}
inline void copy_(const Tensor &to, const Tensor &from) {
  call("aten::copy_", "", value(to), value(from), value(false));
}
inline Tensor clone(const Tensor &a) {
  return call("aten::clone", "", value(a), value(nullptr));
}
inline Tensor contiguous(const Tensor &a) {
  return call("aten::contiguous", "", value(a), value(aoti_torch_memory_format_contiguous_format()));
}
inline Tensor transpose(const Tensor &a, int64_t one, int64_t other) {
  return call("aten::transpose", "int", value(a), value(one), value(other));
}
inline Tensor reshape(const Tensor &a, const std::vector<int64_t> &shape) {
  return call("aten::reshape", "", value(a), value(shape));
}
inline Tensor matmul(const Tensor &a, const Tensor &b) {
  return call("aten::matmul", "", value(a), value(b));
}
/* On a's device, of its dtype. */
inline Tensor new_empty(const Tensor &a, const std::vector<int64_t> &shape) {
  return call("aten::new_empty", "", value(a), value(shape), value(nullptr), value(nullptr), value(nullptr), value(nullptr));
}
inline Tensor new_zeros(const Tensor &a, const std::vector<int64_t> &shape) {
  return call("aten::new_zeros", "", value(a), value(shape), value(nullptr), value(nullptr), value(nullptr), value(nullptr));
}
inline Tensor to_dtype(const Tensor &a, int32_t dtype) {
  return call("aten::to", "dtype_layout", value(a), some(value(dtype)), value(nullptr), value(nullptr), value(nullptr),
              value(false), value(false), value(nullptr));
}
inline Tensor to_cpu(const Tensor &a) {
  uint64_t cpu = uint64_t(uint32_t(aoti_torch_device_type_cpu())) << 32 | 0xffffffffu; /* no index */
  return call("aten::to", "dtype_layout", value(a), value(nullptr), value(nullptr), some(cpu), value(nullptr), value(false),
              value(false), value(nullptr));
}

/* ---- operators of our own ---- */

/* f as torch calls operators: the arguments lie on a stack, and the result is put there. */
template <auto f> struct Boxed;
template <typename Result, typename... Args, Result (*f)(Args...)> struct Boxed<f> {
  static void run(uint64_t *stack, uint64_t n_in, uint64_t n_out) {
    if (n_in != sizeof...(Args) || n_out != (std::is_void_v<Result> ? 0 : 1))
      throw std::runtime_error("an operator of hivemind_c was called with another schema than its own");
    apply(stack, std::index_sequence_for<Args...>());
  }
  template <size_t... i> static void apply(uint64_t *stack, std::index_sequence<i...>) {
    std::tuple<Args...> args{Take<Args>::from(stack[i])...};
    if constexpr (std::is_void_v<Result>)
      std::apply(f, std::move(args));
    else
      stack[0] = value(std::apply(f, std::move(args)));
  }
};

/* Operators of one namespace: their schemas, or what they do on one dispatch key. They are torch's until it is destroyed. */
class Library {
public:
  explicit Library(const char *space) {
    must(aoti_torch_library_init_def(space, __FILE__, __LINE__, &handle), "registering operators");
  }
  Library(const char *space, const char *key) {
    must(aoti_torch_library_init_impl(space, key, __FILE__, __LINE__, &handle), "registering operators");
  }
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;
  ~Library() {
    (void)aoti_torch_delete_library_object(handle);
  }
  void def(const char *schema) {
    must(aoti_torch_library_def(handle, schema), "registering an operator");
  }
  template <auto f> void impl(const char *name) {
    must(torch_library_impl(handle, name, Boxed<f>::run, abi), "registering an operator");
  }

private:
  TorchLibraryOpaque *handle = nullptr;
};

} // namespace stable

#endif
