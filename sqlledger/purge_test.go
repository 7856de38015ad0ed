package sqlledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/sqlledger"
)

// oldRows inserts n old rows of a series for Purge to delete, and one more, the youngest.
func oldRows(t *testing.T, d *database, l *sqlledger.Ledger, series string, n int) {
	t.Helper()
	require.NoError(t, errOf(l.Reserve(t.Context(), days(series, day, 0, 1))))
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("(%s, %s, %s, 1, '2020-01-01 00:00:00.000')",
			literal(d, series), literal(d, fmt.Sprintf("%06d", i)), literal(d, days("", "", 0, 0).Print))
	}
	execSQL(t, d.open(t, nil), "INSERT INTO serial_ledger VALUES "+strings.Join(values, ", "))
}

// Rows that cannot be deleted cause an error, but the others are still deleted.
func TestPurgeKept(t *testing.T) {
	const more = 1100 // more than Purge queries at once
	prevent := func(d *database, what string) []string {
		switch what {
		case "rule":
			return []string{"CREATE RULE keeps AS ON DELETE TO serial_ledger WHERE OLD.series = 'kept'::bytea DO INSTEAD " +
				"NOTHING"}
		case "trigger":
			if d.dialect == sqlledger.SQLite {
				return []string{"CREATE TRIGGER keeps BEFORE DELETE ON serial_ledger WHEN OLD.series = x'6b657074' " +
					"BEGIN SELECT RAISE(IGNORE); END"}
			}
			return []string{
				"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS " +
					"$$BEGIN IF OLD.series = 'kept' THEN RETURN NULL; END IF; RETURN OLD; END$$",
				"CREATE TRIGGER keeps BEFORE DELETE ON serial_ledger FOR EACH ROW EXECUTE PROCEDURE keep()",
			}
		case "row security":
			return []string{
				"CREATE ROLE " + d.name,
				"GRANT USAGE ON SCHEMA " + d.name + " TO " + d.name,
				"GRANT SELECT, INSERT, UPDATE, DELETE ON serial_ledger TO " + d.name,
				"ALTER TABLE serial_ledger ENABLE ROW LEVEL SECURITY",
				"CREATE POLICY sees ON serial_ledger FOR SELECT USING (true)",
				"CREATE POLICY deletes ON serial_ledger FOR DELETE USING (series <> 'kept')",
			}
		}
		return nil
	}
	for _, s := range []struct {
		name, what string
		open       func(*testing.T) *database
		hook       hook
	}{
		{"PostgreSQL", "rule", postgres, nil},
		{"PostgreSQL", "trigger", postgres, nil},
		{"PostgreSQL", "row security", postgres, nil},
		// MySQL has no such feature.
		{"MySQL", "DELETE", mariadb, on("DELETE", func(s *statement) error {
			return s.run(strings.Replace(s.text, "WHERE", "WHERE series <> 'kept' AND", 1))
		})},
		{"SQLite", "trigger", sqlite3, nil},
	} {
		t.Run(s.name+"/"+s.what, func(t *testing.T) {
			d := s.open(t)
			l := d.ledger(t, nil)
			for series, n := range map[string]int{"a": 10, "kept": more, "z": more} {
				oldRows(t, d, l, series, n)
			}
			admin := d.open(t, nil)
			for _, query := range prevent(d, s.what) {
				execSQL(t, admin, query)
			}
			var init []string
			if s.what == "row security" {
				t.Cleanup(func() { // a role outlives its schema, and cannot be dropped while it has rights
					for _, query := range []string{"DROP OWNED BY ", "DROP ROLE "} {
						require.NoError(t, errOf(admin.Exec(query+d.name)))
					}
				})
				init = []string{"SET ROLE " + d.name}
			}
			purging := d.ledgerOn(t, d.open(t, s.hook, init...))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			purged, err := purging.Purge(ctx, 72*time.Hour)
			stay := fmt.Sprintf("sqlledger: purge: %d old rows were found but not deleted, such as "+
				`period "000000" of "kept": row security, a rule or a trigger may prevent it`, more)
			require.EqualError(t, err, stay)
			require.EqualValues(t, more+10, purged)
			purged, err = purging.Purge(ctx, 72*time.Hour)
			require.EqualError(t, err, stay, "only these rows remain")
			require.Zero(t, purged)

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var deletes atomic.Int32
			stopped := d.ledgerOn(t, d.open(t, on("DELETE", func(st *statement) error {
				if deletes.Add(1) == 5 {
					stop()
				}
				if s.hook != nil {
					return s.hook(st)
				}
				return st.run(st.text)
			}), init...))
			require.ErrorIs(t, errOf(stopped.Purge(ctx, 72*time.Hour)), context.Canceled)
			require.Less(t, deletes.Load(), int32(10))
		})
	}
}

// Rows that another Purge deletes or a reservation renews meanwhile cause no error.
func TestPurgeAtOnce(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		l := d.ledger(t, nil)
		oldRows(t, d, l, "a", 1100)
		oldRows(t, d, l, "b", 1)
		var once atomic.Bool
		purging := d.ledgerOn(t, d.open(t, on("DELETE", func(s *statement) error {
			if once.CompareAndSwap(false, true) {
				_, err := l.Reserve(context.Background(), days("a", "000500", 0, 1))
				purged, failed := l.Purge(context.Background(), 72*time.Hour)
				if err := errors.Join(err, failed); err != nil || purged != 1100 {
					t.Errorf("%d purged meanwhile: %v", purged, err)
				}
			}
			return s.run(s.text)
		})))
		requireResult(t, int64(0))(purging.Purge(t.Context(), 72*time.Hour))
		require.True(t, once.Load())
	})
}

// A row that reappears as soon as it is deleted is deleted once.
func TestPurgeEnds(t *testing.T) {
	for _, s := range []struct {
		name    string
		open    func(*testing.T) *database
		trigger []string
	}{
		{"PostgreSQL", postgres, []string{
			"CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS " +
				"'BEGIN INSERT INTO serial_ledger SELECT OLD.*; RETURN OLD; END'",
			"CREATE TRIGGER again AFTER DELETE ON serial_ledger FOR EACH ROW EXECUTE PROCEDURE again()",
		}},
		{"SQLite", sqlite3, []string{
			"CREATE TRIGGER again AFTER DELETE ON serial_ledger BEGIN " +
				"INSERT INTO serial_ledger VALUES (OLD.series, OLD.period, OLD.settings, OLD.last, OLD.reserved_at); END",
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			d := s.open(t)
			l := d.ledger(t, nil)
			oldRows(t, d, l, "a", 1100)
			for _, query := range s.trigger {
				execSQL(t, d.open(t, nil), query)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			requireResult(t, int64(1100))(l.Purge(ctx, 72*time.Hour))
		})
	}
}
