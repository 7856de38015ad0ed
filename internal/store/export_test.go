package store

// TakeSource is the source of take.
var TakeSource = TakeScript.Source

// Sources are the scripts that include rules outside any function.
var Sources = []string{OpenScript.Source, peekScript.Source, prepareScript.Source, historyScript.Source}
