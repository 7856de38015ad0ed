package serialpage

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/dailyserial/serial"
)

// A jsonAccount is the account of a period, for programs. Its lists are never null.
type jsonAccount struct {
	Key               string          `json:"key"`
	Type              string          `json:"type"`
	Start             time.Time       `json:"start"`
	End               *time.Time      `json:"end"` // null in the year 10000
	At                time.Time       `json:"at"`
	Clean             bool            `json:"clean"`
	First             int64           `json:"first"`
	Last              int64           `json:"last"`
	Stored            int64           `json:"stored"`
	MissingCount      int64           `json:"missingCount"`
	ExplainedCount    int64           `json:"explainedCount"`
	UnexplainedCount  int64           `json:"unexplainedCount"`
	PossibleCount     int64           `json:"possibleCount"`
	ContradictedCount int64           `json:"contradictedCount"`
	DuplicateCount    int64           `json:"duplicateCount"`
	BeyondCount       int64           `json:"beyondCount"`
	ForeignCount      int64           `json:"foreignCount"`
	Explained         []jsonExplained `json:"explained"`
	Unexplained       []jsonRange     `json:"unexplained"`
	Possible          []jsonExplained `json:"possible"`
	Replaced          []jsonReplaced  `json:"replaced"`
	Contradicted      []string        `json:"contradicted"`
	Duplicates        []string        `json:"duplicates"`
	Beyond            []string        `json:"beyond"`
	Foreign           []string        `json:"foreign"`
}

type jsonRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

type jsonReason struct {
	Reason string     `json:"reason"`
	By     string     `json:"by,omitempty"`
	At     *time.Time `json:"at"`
}

type jsonExplained struct {
	jsonRange
	jsonReason
}

type jsonReplaced struct {
	jsonExplained
	ReplacedBy jsonReason `json:"replacedBy"`
}

// writeJSON answers with an account for programs.
func writeJSON(w http.ResponseWriter, s *Series, p span, a *audit) error {
	r := &a.Report
	out := jsonAccount{
		Key: s.Key, Type: s.Type, Start: p.Start, End: jsonTime(p.End), At: a.at, Clean: r.Clean(),
		First: r.First, Last: r.Last, Stored: r.Count, MissingCount: r.MissingCount, ExplainedCount: r.ExplainedCount,
		UnexplainedCount: r.UnexplainedCount, PossibleCount: r.PossibleCount, ContradictedCount: r.ContradictedCount,
		DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount, ForeignCount: r.ForeignCount,
		Explained: []jsonExplained{}, Unexplained: []jsonRange{}, Possible: []jsonExplained{}, Replaced: []jsonReplaced{},
		Contradicted: a.texts(r.Contradicted, false), Duplicates: a.texts(r.Duplicates, true),
		Beyond: a.texts(r.Beyond, true), Foreign: []string{},
	}
	for _, e := range r.Explained {
		out.Explained = append(out.Explained, jsonExplained{jsonRange(e.Range), reasonOf(e.Explanation)})
	}
	for _, g := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, jsonRange(g))
	}
	for _, e := range r.Possible {
		out.Possible = append(out.Possible, jsonExplained{jsonRange{e.First, e.Last}, reasonOf(e)})
	}
	for _, x := range a.replaced {
		for _, g := range x.ranges {
			out.Replaced = append(out.Replaced, jsonReplaced{jsonExplained{jsonRange(g), reasonOf(x.old)}, reasonOf(x.by)})
		}
	}
	for _, text := range r.Foreign {
		out.Foreign = append(out.Foreign, a.foreign(text))
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return unavailable(err)
	}
	return nil
}

func reasonOf(e serial.Explanation) jsonReason { return jsonReason{e.Reason, e.By, jsonTime(e.At)} }

// jsonTime is a time in JSON, or null if RFC 3339 cannot express it.
func jsonTime(t time.Time) *time.Time {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
