package app

import "testing"

func TestAnotherDatabaseNeedsARestart(t *testing.T) {
	t.Parallel()
	const postgres, mysql = "postgres://app:first@db:5432/shop?sslmode=disable", "mysql://app:first@db/shop"
	for _, c := range []struct {
		atStart, value string
		taken          bool
	}{
		{postgres, "postgresql://relay:second@db:5432/shop?sslmode=require", true},
		{postgres, "postgres://app:first@standby:5432/shop", false},
		{postgres, "postgres://app:first@db:5432/books", false},
		{postgres, mysql, false},
		{postgres, "no DSN", false},
		{"postgres:///shop?host=/run/a", "postgres:///shop?host=/run/b", false},
		{mysql, "mariadb://relay:second@db/shop", true},
		{mysql, "mysql://app:first@db:3307/shop", false},
	} {
		if err := sameDatabase(c.atStart, c.value); (err == nil) != c.taken {
			t.Errorf("from %s to %s: %v", c.atStart, c.value, err)
		}
	}
}
