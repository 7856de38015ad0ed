package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each text that a mutant of the list replaces must occur exactly once in the code.
func TestList(t *testing.T) {
	mutants, err := parse(list)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(mutants), 300)
	require.NoError(t, check("../..", mutants))
	for _, m := range mutants {
		require.NotEqual(t, m.old, m.new, "%d", m.number)
	}
}

func TestParse(t *testing.T) {
	mutants, err := parse("# head\n\nfile: a/b.go\ntest: a,c TestX|TestY\n\nit forgets\n- x :=  1\n- \ty()\n+ z\n\n" +
		"it lies\ntest: d\nlives: nobody\n asks\n-  x\n")
	require.NoError(t, err)
	require.Equal(t, []mutant{
		{1, "a/b.go", test{"a,c", "TestX|TestY"}, "it forgets", "x :=  1\n\ty()", "z", ""},
		{2, "a/b.go", test{"d", ""}, "it lies", " x", "", "nobody"},
	}, mutants)
	const head = "file: a\ntest: b\n\n"
	for _, text := range []string{"what\n- x", "file: a\n\nwhat\n- x", head + "- x", head + "what"} {
		_, err := parse(text)
		require.Error(t, err, text)
	}
}
