package serialotel

// VersionIn is tested alone, since a test binary's list of modules depends on the toolchain.
var VersionIn = versionIn
