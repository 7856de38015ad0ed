package calendar_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
)

// The name of a calendar states the unit and, if it matters, where business years start.
func TestNames(t *testing.T) {
	for unit := calendar.Second; unit.Valid(); unit++ {
		for _, start := range yearStarts {
			for _, businessYears := range []bool{false, true} {
				c := calendar.Calendar{Unit: unit, YearStart: calendar.NewYearStart(start.month, start.day)}
				name := c.Name(businessYears)
				gotUnit, gotStart, ok := calendar.ParseName(name)
				require.True(t, ok, name)
				require.Equal(t, unit, gotUnit, name)
				if businessYears || unit == calendar.Year || unit == calendar.HalfYear || unit == calendar.Quarter {
					require.Equal(t, c.YearStart, gotStart, name)
				} else {
					require.Zero(t, gotStart, name)
				}
			}
		}
	}
	april := calendar.Calendar{Unit: calendar.Year, YearStart: calendar.NewYearStart(time.April, 1)}
	require.Equal(t, "years from April 1", april.Name(false))
	require.Equal(t, "days of years from April 1", april.With(calendar.Day).Name(true))
	require.Equal(t, "half-years from April 1", april.With(calendar.HalfYear).Name(false))
	require.Equal(t, "half-years", calendar.Calendar{Unit: calendar.HalfYear}.Name(true))
	require.Equal(t, "days", april.With(calendar.Day).Name(false))
	require.Equal(t, "all time", calendar.Calendar{Unit: calendar.Never}.Name(false))
	for _, name := range []string{"", "day", "fortnights", "years from ", "years from April 31", "quarters from 1 April"} {
		_, _, ok := calendar.ParseName(name)
		require.False(t, ok, name)
	}
}

// Labels are read as dates; other texts stay as they are.
func TestFormatLabel(t *testing.T) {
	for label, want := range map[string]string{
		"20211024153059": "2021-10-24 15:30:59", "202110241530": "2021-10-24 15:30", "2021102415": "2021-10-24 15",
		"20211024": "2021-10-24", "202110": "2021-10", "2021": "2021", "2024W01": "2024-W01", "2024Q1": "2024-Q1",
		"2024H1": "2024-H1",
		"all":    "all time", "": "", "0": "0", "20211324": "20211324", "2024X01": "2024X01",
	} {
		require.Equal(t, want, calendar.FormatLabel(label))
	}
}
