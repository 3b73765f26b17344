package app

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/files"
)

// present returns the value of a key as its file has it now, and the value of the start where the key has no file. The
// file is looked at for each connection, so a rotated password needs no restart. While the file cannot be read or
// check refuses its value, the value before stays in use.
func (a *App) present(key, atStart string, check func(value string) error) func() string {
	path := a.settings.SecretFile(key)
	if path == "" {
		return func() string { return atStart }
	}
	watched, err := files.Watch(files.Source[string, string]{
		Read: func() (string, error) { return config.ReadSecret(path) },
		Make: func(value string) (string, error) { return value, check(value) },
		Reloaded: func() {
			a.logger.Info("a file with a secret has changed: new connections use the new value", "key", key+"_file")
		},
		Failed: func(err error) {
			a.logger.Warn("a changed file with a secret is unusable; the value read before stays in use; correct the file",
				"key", key+"_file", "cause", err)
		},
	})
	if err != nil { // changed since the configuration was read
		return func() string { return atStart }
	}
	return watched.Current
}

// redisAddress returns the address of now, with users and passwords for the next connection to Redis or a Sentinel.
func (a *App) redisAddress() func() address.Redis {
	url := a.present("redis.url", "", func(value string) error {
		_, err := address.ParseRedis(value)
		return err
	})
	return func() address.Redis {
		where, _ := address.ParseRedis(cmp.Or(url(), a.reloader.config().Redis.URL)) // checked
		return where
	}
}

// outboxDSN returns the DSN for the next connection to the database of an outbox. Login and options may change.
func (a *App) outboxDSN(name string) func() string {
	atStart := a.settings.Outbox[name].DSN
	return a.present("outbox."+name+".dsn", atStart, func(value string) error {
		return sameDatabase(atStart, value)
	})
}

// sameDatabase refuses the DSN of another database. Connections stay open for up to an hour, and what a connection to
// one database claims, another one settles.
func sameDatabase(atStart, value string) error {
	was, _ := address.ParseSQL(atStart) // checked
	is, err := address.ParseSQL(value)
	if err == nil && placeOf(was) != placeOf(is) {
		err = errors.New("names another server or database: restart the coordinators")
	}
	return err
}

// placeOf is a database without its login and options, to be compared.
func placeOf(at address.SQL) string {
	options := at.URL.Query()
	return fmt.Sprintln(at.PostgreSQL, at.URL.Host, at.Database, options["host"], options["port"], options["dbname"])
}

// brokerURL returns the URL for the next connection to a broker; the empty name is the default broker.
func (a *App) brokerURL(name, atStart string) func() string {
	url := a.present(keyOfBroker(name), atStart, checkBrokerURL)
	return func() string { return strings.ReplaceAll(url(), " ", "") }
}

// checkBrokerURL refuses what is no URL of a broker, and quotes nothing of the URL.
func checkBrokerURL(value string) (err error) {
	scheme, _, _ := strings.Cut(strings.TrimSpace(value), "://")
	switch scheme {
	case "kafka":
		_, err = address.ParseKafka(value)
	case "nats", "tls":
		_, err = address.ParseNATS(value)
	default:
		for url := range strings.SplitSeq(value, ",") {
			if _, err = address.ParseAMQP(strings.TrimSpace(url)); err != nil {
				return err
			}
		}
	}
	return err
}
