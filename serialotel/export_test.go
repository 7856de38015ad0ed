package serialotel

// VersionIn is tested by itself: what a test binary tells of its modules depends on the toolchain.
var VersionIn = versionIn
