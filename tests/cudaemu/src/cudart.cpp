// As much of the CUDA runtime as scikit-cuda looks at when it is imported. Nothing here uses the runtime: the library
// stands in for a toolkit's, which machines without a GPU rarely have.
//
// Every other function that scikit-cuda looks up exists too and answers "not supported" (cudart_symbols.txt).
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char *cudaGetErrorString(int) { return "an error of the emulated runtime"; }

EXPORT int cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return 0;
}

// Used by the generated file of functions that do nothing.
extern "C" int cuemu_cudart_unsupported(const char *) {
    return 801;  // cudaErrorNotSupported
}
