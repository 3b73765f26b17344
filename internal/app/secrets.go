package app

import (
	"errors"
	"fmt"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/files"
)

// present returns the value of a key as its file has it now, and the value of the start where the key has no file. See
// follow. Refuse says why a valid value is not taken; nil refuses none. All parts that use a key follow its file
// together. Only New and Run call present, one after the other.
func (a *App) present(key, atStart string, refuse func(value string) error) func() string {
	path := a.settings.SecretFile(key)
	if path == "" {
		return func() string { return atStart }
	}
	if a.reloader.followed[key] == nil {
		a.reloader.followed[key] = a.follow(key, atStart, func() (string, error) {
			value, err := config.ReadFile(key, path)
			if err == nil && refuse != nil {
				err = refuse(value)
			}
			return value, err
		})
	}
	return a.reloader.followed[key]
}

// follow returns a value that read reads from the file of a key, at first the value of the start. The file is looked at
// for each use, so a rotated password needs no restart. While the value cannot be read, the value before stays in use.
func (a *App) follow(key, atStart string, read func() (string, error)) func() string {
	started := false
	watched, _ := files.Watch(files.Source[string, string]{ // the first reading cannot fail
		Read: func() (string, error) {
			if started {
				return read()
			}
			started = true
			return atStart, nil
		},
		Make: func(value string) (string, error) { return value, nil },
		Reloaded: func() {
			a.logger.Info(changedSecret(key), "key", key+"_file")
		},
		Failed: func(err error) {
			a.logger.Warn("a changed file with a secret is unusable; the value read before stays in use; correct the file",
				"key", key+"_file", "cause", err)
		},
	})
	return watched.Current
}

// changedSecret says what follows from a changed file. A move of Redis may be refused.
func changedSecret(key string) string {
	if key == cause.Redis.Key {
		return "a file with a secret has changed: new connections to the same Redis use its value from now on; " +
			"further lines tell of a move to another Redis"
	}
	return "a file with a secret has changed: its value is used from now on"
}

// redisAddress returns the address of now, with users and passwords for the next connection to Redis or a Sentinel. A
// reload may name another file, or none.
func (a *App) redisAddress() func() address.Redis {
	url := a.follow("redis.url", a.reloader.config().Redis.URL, func() (string, error) {
		now := a.reloader.config()
		if path := now.SecretFile("redis.url"); path != "" {
			return config.ReadFile("redis.url", path)
		}
		return now.Redis.URL, nil
	})
	return func() address.Redis {
		where, _ := address.ParseRedis(url()) // checked
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
	return a.present(keyOfBroker(name), atStart, func(value string) error {
		if brokers.System(value) != brokers.System(atStart) {
			return errors.New("names another kind of broker: restart the coordinators")
		}
		return nil
	})
}
