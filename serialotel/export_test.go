package serialotel

// VersionIn is tested separately, because the module list of a test binary depends on the toolchain.
var VersionIn = versionIn
