package database

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// A parameter of a URL is used or refused: without its tls=true a password would go over the network in clear.
func TestParametersAreUsedOrRefused(t *testing.T) {
	t.Parallel()
	_, dsn, _, err := parse("mariadb://shop:p%40ss@db.example.com/shop?tls=true")
	if err != nil {
		t.Fatal(err)
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.TLSConfig != "true" || config.Addr != "db.example.com:3306" ||
		config.User != "shop" || config.Passwd != "p@ss" || config.DBName != "shop" {
		t.Errorf("parsed as %+v: %v", config, err)
	}
	for _, name := range []string{
		"sqlite:orders.db?mode=ro", "mariadb://h/shop?timeout=soon", "", "sqlite:", "orders.db", "oracle://u:secret@h/db",
		"mariadb://u:secret@h:port/db", "mysql:secret",
	} {
		if _, dsn, _, err := parse(name); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s was taken as %s: %v", name, dsn, err)
		}
	}
}

func TestUnreachableDatabaseIsClosed(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "missing", "shop.db"))
	if err == nil || db != nil {
		t.Errorf("opened %v, %v", db, err)
	}
}
