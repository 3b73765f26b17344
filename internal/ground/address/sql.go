package address

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// formSQL is the form of the address of a database.
//
//nolint:gosec // placeholders
const formSQL = "postgres://user:password@host/database, or mysql:// or mariadb:// likewise"

// SQL is the address of a database.
type SQL struct {
	// PostgreSQL, or else MySQL or MariaDB.
	PostgreSQL bool
	// URL has the first host.
	URL *url.URL
	// Host is HOST:PORT of a MySQL or MariaDB.
	Host string
	// Database is its name.
	Database string
}

// ParseSQL reads the address of a PostgreSQL, MySQL or MariaDB. The driver reads the options after the ?.
func ParseSQL(text string) (a SQL, err error) {
	u, hosts, err := parse(text, formSQL, sqlSchemes...)
	if err != nil {
		return SQL{}, err
	}
	a = SQL{PostgreSQL: strings.HasPrefix(u.Scheme, "postgres"), URL: u, Database: strings.TrimPrefix(u.Path, "/")}
	if a.Database == "" || strings.Contains(a.Database, "/") {
		return SQL{}, errors.New("names no database; write " + formSQL)
	}
	if a.PostgreSQL {
		return a, checkPostgreSQLHosts(u, hosts)
	}
	if len(hosts) > 1 {
		return SQL{}, errors.New("names several hosts, and a MySQL or MariaDB has one; leave one")
	}
	a.Host, err = readHost(hosts[0], "3306")
	return a, err
}

// checkPostgreSQLHosts accepts no host with the option host, which may be the directory of a socket.
func checkPostgreSQLHosts(u *url.URL, hosts []string) error {
	if u.Host == "" && u.Query().Get("host") != "" {
		return nil
	}
	for _, host := range hosts {
		if _, err := readHost(host, "5432"); err != nil {
			return err
		}
	}
	return nil
}

var sqlSchemes = []string{"postgres", "postgresql", "mysql", "mariadb"}

// schemes are the schemes of all addresses.
var schemes = slices.Concat([]string{"redis", "rediss", "amqp", "amqps", "kafka", "nats", "tls"}, sqlSchemes)
