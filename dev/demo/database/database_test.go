package database_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/demo/database"
)

func TestOpenChecksNames(t *testing.T) {
	t.Parallel()
	for name, dialect := range map[string]string{
		"sqlite:orders.db": "sqlite", "postgres://u:p@h/db": "postgresql", "postgresql://h/db": "postgresql",
		"mariadb://u:p@h/db": "mysql", "mysql://h:3307/db": "mysql", "mariadb://u:p@h/db?timeout=2s&tls=false": "mysql",
	} {
		db, err := database.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if db.Dialect.String() != dialect {
			t.Errorf("%s speaks %v", name, db.Dialect)
		}
		_ = db.Close()
	}
	for _, name := range []string{
		"", "sqlite:", "orders.db", "oracle://u:secret@h/db", "mariadb://u:secret@h:port/db", "mysql:secret",
		"mariadb://u:secret@h/db?timeout=soon", // a parameter is the driver's to read
	} {
		if _, err := database.Open(name); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestStatementFitsDialect(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"sqlite:x": "id VARCHAR(128) a = ? AND b = ?", "postgres://h/db": "id VARCHAR(128) a = $1 AND b = $2",
		"mysql://h/db": "id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin a = ? AND b = ?",
	} {
		db, err := database.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := db.SQL("id {id} a = ? AND b = ?"); got != want {
			t.Errorf("%s: %s", name, got)
		}
		_ = db.Close()
	}
}
