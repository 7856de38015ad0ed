package store

// TakeSource is the source of take.
var TakeSource = TakeScript.Source

// Sources are the scripts that include rules, by name.
var Sources = map[string]string{
	"take": TakeScript.Source, "open": OpenScript.Source, "prepare": prepareScript.Source, "peek": peekScript.Source,
	"history": historyScript.Source,
}
