package sqlledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/sqlledger"
)

// On one connection, a temporary table has the name of the ledger's table. Nothing may be reserved in the temporary
// table.
func TestHiddenTable(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		schemas := map[sqlledger.Dialect][]string{
			sqlledger.PostgreSQL: {sqlledger.PostgreSQLSchema},
			sqlledger.MySQL:      {sqlledger.MySQLSchema, strings.Replace(sqlledger.MySQLSchema, "InnoDB", "MEMORY", 1)},
			sqlledger.SQLite:     {sqlledger.SQLiteSchema},
		}[d.dialect]
		l := d.ledger(t, nil)
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		for _, schema := range schemas {
			db := d.open(t, nil, strings.Replace(schema, "CREATE", "CREATE TEMPORARY", 1))
			after, err := d.ledgerOn(t, db).Reserve(t.Context(), days("IS", day, 0, 10))
			if d.dialect == sqlledger.SQLite { // the statements for SQLite name the schema
				requireResult(t, int64(10))(after, err)
				continue
			}
			require.ErrorContains(t, err, "sqlledger: reserve: the database can lose committed data: the table is ")
			require.ErrorContains(t, err, "temporary")
			// If the name includes the schema, the temporary table still hides the table on MySQL, but not on PostgreSQL.
			named := d.ledgerOn(t, db, sqlledger.WithTable(d.name+".serial_ledger"))
			if after, err = named.Reserve(t.Context(), days("IS", day, 0, 10)); d.dialect == sqlledger.PostgreSQL {
				requireResult(t, int64(10))(after, err)
			} else {
				require.ErrorContains(t, err, "temporary")
			}
		}
	})
}

// A table is missing, or has another shape. The error of every call must contain the remedy, and a table with another
// shape must stay unchanged. If another table is missing, the error must not contain the remedy. With the Dialect of
// another database, the error must mention the Dialect.
func TestUnusableTable(t *testing.T) {
	const (
		notOfLedger = "the table was not created by this version; choose another name with WithTable, or drop this table, " +
			"and then call CreateTable to create a new one"
		notOfRegister = "the table was not created for a Register by this version; choose another name with " +
			"WithRegisterTable, and then call CreateTable to create a new table"
	)
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		l := newLedger(t, d, db)
		newRegister(t, d, db)
		require.NoError(t, d.ledgerOn(t, db, sqlledger.WithTable("narrow")).CreateTable(t.Context()))
		execSQL(t, db,
			"ALTER TABLE narrow DROP COLUMN settings",
			"CREATE TABLE old AS SELECT series, start, first, last, reason FROM serial_explanations",
			"CREATE TABLE loose AS SELECT * FROM serial_explanations", // would store the same explanation twice
			"CREATE TABLE other (n int)")
		const register = "Explain ExplainIn Explanations"
		loose := map[bool]string{true: "CreateRegister", false: "Explain"}[d.dialect == sqlledger.MySQL]
		for _, s := range []struct{ table, advice, calls string }{
			{"Numbers", "the table Numbers does not exist: call CreateTable", "Reserve Purge"},
			{"Reasons", "the table Reasons does not exist: call CreateTable", register},
			{"narrow", notOfLedger, "Reserve CreateLedger"},
			{"old", notOfRegister, register + " CreateRegister"},
			{"serial_ledger", notOfRegister, register + " CreateRegister"},
			{"loose", notOfRegister, loose},
		} {
			l := d.ledgerOn(t, db, sqlledger.WithTable(s.table))
			r := d.registerOn(t, db, sqlledger.WithRegisterTable(s.table))
			tx := begin(t, db)
			calls := map[string]func() error{
				"Reserve":        func() error { return onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))) },
				"Purge":          func() error { return onlyErr(l.Purge(t.Context(), 72*time.Hour)) },
				"CreateLedger":   func() error { return l.CreateTable(t.Context()) },
				"Explain":        func() error { return r.Explain(t.Context(), void(1)) },
				"ExplainIn":      func() error { return r.ExplainIn(t.Context(), tx, void(1)) },
				"Explanations":   func() error { return onlyErr(collect(r, "serial:IS", midnight)) },
				"CreateRegister": func() error { return r.CreateTable(t.Context()) },
			}
			for name := range strings.FieldsSeq(s.calls) {
				err := calls[name]()
				require.ErrorContains(t, err, s.advice, "%s of %s", name, s.table)
				var remedy interface{ Remedy() string }
				require.ErrorAs(t, err, &remedy)
				require.Contains(t, remedy.Remedy(), s.advice)
			}
			require.NoError(t, tx.Rollback())
		}
		for other := sqlledger.PostgreSQL; other <= sqlledger.SQLite; other++ {
			if wrong := *d; other != d.dialect {
				wrong.dialect = other
				l, r, tx := wrong.ledgerOn(t, db), wrong.registerOn(t, db), begin(t, db)
				for _, err := range []error{l.CreateTable(t.Context()), r.CreateTable(t.Context()),
					r.ExplainIn(t.Context(), tx, void(1)), onlyErr(collect(r, "serial:IS", midnight))} {
					require.ErrorContains(t, err, "check that the Dialect is right")
				}
				require.NoError(t, tx.Rollback())
			}
		}

		body := "INSERT INTO other VALUES (1);"
		switch d.dialect {
		case sqlledger.PostgreSQL:
			execSQL(t, db, "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "+body+" RETURN NEW; END'")
			body = "EXECUTE PROCEDURE note()"
		default:
			body = "BEGIN " + body + " END"
		}
		execSQL(t, db, "CREATE TRIGGER notes AFTER INSERT ON serial_ledger FOR EACH ROW "+body)
		execSQL(t, db, "DROP TABLE other")
		err := onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		require.ErrorContains(t, err, "other")
		require.NotContains(t, err.Error(), "CreateTable")
		execSQL(t, db, "DROP TRIGGER notes"+map[bool]string{true: " ON serial_ledger"}[d.dialect == sqlledger.PostgreSQL])
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
	})
}

// On one connection, the name refers to a table of another schema. Nothing may be reserved there.
func TestOtherSchema(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		to := map[sqlledger.Dialect]string{sqlledger.PostgreSQL: "SET search_path = ", sqlledger.MySQL: "USE "}[d.dialect]
		other := map[sqlledger.Dialect]func(*testing.T) *database{
			sqlledger.PostgreSQL: postgres, sqlledger.MySQL: mariadb,
		}[d.dialect](t)
		other.ledger(t, nil)
		db := d.open(t, nil)
		db.SetMaxOpenConns(1)
		l := newLedger(t, d, db)
		requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
		execSQL(t, db, to+other.name)
		_, err := l.Reserve(t.Context(), days("IS", day, 0, 10))
		require.EqualError(t, err, fmt.Sprintf("sqlledger: reserve: on this connection, the table is in schema %s, but "+
			"earlier it was in %s; include the schema in the name that you pass to WithTable", other.name, d.name))
		execSQL(t, db, to+d.name)
		requireResult(t, int64(10))(l.Reserve(t.Context(), days("IS", day, 0, 10)))
	})
}

// A trigger changes the row that Reserve writes. Nothing may be reserved.
func TestRowChangedByTrigger(t *testing.T) {
	const altered = "sqlledger: reserve: the database can lose committed data: a trigger or a rule changes the written " +
		"row"
	type trigger struct{ when, does string }
	triggers := map[sqlledger.Dialect][]trigger{
		sqlledger.PostgreSQL: {
			{"BEFORE UPDATE", "NEW.last := OLD.last; RETURN NEW;"},
			{"BEFORE UPDATE", "NEW.last := NEW.last - 1; RETURN NEW;"},
			{"BEFORE UPDATE", "RETURN OLD;"},
			{"BEFORE UPDATE", "RETURN NULL;"},
			{"BEFORE INSERT", "NEW.last := 0; RETURN NEW;"},
			{"BEFORE INSERT", "RETURN NULL;"},
		},
		sqlledger.MySQL: {
			{"BEFORE UPDATE", "SET NEW.last = OLD.last"},
			{"BEFORE UPDATE", "SET NEW.last = NEW.last - 1"},
			{"BEFORE UPDATE", "SET NEW.last = OLD.last, NEW.reserved_at = OLD.reserved_at"},
			{"BEFORE INSERT", "SET NEW.last = 0"},
			{"BEFORE INSERT", "SET NEW.series = 'other'"},
		},
		sqlledger.SQLite: {
			{"BEFORE UPDATE", "SELECT RAISE(IGNORE);"},
			{"AFTER UPDATE", "UPDATE serial_ledger SET last = OLD.last WHERE series = OLD.series AND period = OLD.period;"},
			{"BEFORE INSERT", "SELECT RAISE(IGNORE);"},
			{"AFTER INSERT", "UPDATE serial_ledger SET last = 0 WHERE series = NEW.series AND period = NEW.period;"},
			{"AFTER INSERT", "DELETE FROM serial_ledger WHERE series = NEW.series AND period = NEW.period;"},
		},
	}
	create, drop := map[sqlledger.Dialect]string{
		sqlledger.PostgreSQL: "CREATE OR REPLACE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN %[2]s END'; " +
			"CREATE TRIGGER meddles %[1]s ON serial_ledger FOR EACH ROW EXECUTE PROCEDURE meddle()",
		sqlledger.MySQL:  "CREATE TRIGGER meddles %s ON serial_ledger FOR EACH ROW %s",
		sqlledger.SQLite: "CREATE TRIGGER meddles %s ON serial_ledger BEGIN %s END",
	}, map[sqlledger.Dialect]string{sqlledger.PostgreSQL: " ON serial_ledger"}
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		l := newLedger(t, d, db)
		for i, tr := range triggers[d.dialect] {
			t.Run(tr.when+" "+tr.does, func(t *testing.T) {
				series, kept := fmt.Sprint(i), int64(0)
				if strings.HasSuffix(tr.when, "UPDATE") {
					requireResult(t, int64(0))(l.Reserve(t.Context(), days(series, day, 0, 10)))
					kept = 10
				}
				execSQL(t, db, fmt.Sprintf(create[d.dialect], tr.when, tr.does))
				for range 2 {
					require.EqualError(t, onlyErr(l.Reserve(t.Context(), days(series, day, 0, 10))), altered)
				}
				execSQL(t, db, "DROP TRIGGER meddles"+drop[d.dialect])
				requireResult(t, kept)(l.Reserve(t.Context(), days(series, day, 0, 10)))
			})
		}
	})
}

// Without a primary key, MySQL would insert another row for each reservation, so Reserve must fail. With AUTO_INCREMENT
// in the table, Reserve must work.
func TestMySQLKeys(t *testing.T) {
	d := mariadb(t)
	db := d.open(t, nil)
	execSQL(t, db, strings.Replace(sqlledger.MySQLSchema, "PRIMARY KEY", "KEY", 1))
	l := newLedger(t, d, db)
	require.NoError(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))))
	for range 2 {
		require.ErrorContains(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))), "series and period are not unique")
	}

	execSQL(t, db, "DROP TABLE serial_ledger")
	execSQL(t, db, strings.Replace(sqlledger.MySQLSchema,
		"PRIMARY KEY", "id bigint AUTO_INCREMENT PRIMARY KEY, UNIQUE KEY", 1))
	execSQL(t, db, "ALTER TABLE serial_ledger AUTO_INCREMENT = 1000000")
	reserves(t, newLedger(t, d, db))
}
