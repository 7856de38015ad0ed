package store

// TakeSource is the source of take.
var TakeSource = TakeScript.Source
