package serialotel

// VersionIn is tested apart: what a test's own program tells of its modules depends on the toolchain.
var VersionIn = versionIn
