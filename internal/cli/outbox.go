package cli

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// outboxCommand sets up the outbox in plain SQL.
type outboxCommand struct {
	DDL     outboxDDLCommand     `cmd:"" name:"ddl" help:"Print the statements that create a table."`
	Migrate outboxMigrateCommand `cmd:"" help:"Create the table in a database; a table that is there is checked."`
}

type outboxDDLCommand struct {
	Kind     string `arg:"" optional:"" enum:"outbox,markers,inbox" default:"outbox" help:"Whose table: outbox (the default), or, for a service without an SDK, markers or inbox." placeholder:"KIND"`
	Dialect  string `required:"" enum:"postgresql,mysql" help:"The kind of database: postgresql or mysql, which is MariaDB too." placeholder:"DIALECT"`
	Producer string `help:"The producer of rows of the outbox whose INSERT names none." placeholder:"NAME"`
	Table    string `help:"The name of the table (default: msghandler_outbox, msghandler_markers or msghandler_inbox)." placeholder:"TABLE"`
}

// Run prints the statements.
func (c *outboxDDLCommand) Run(s *commandline.Session) error {
	statements, err := c.statements()
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	_, err = io.WriteString(s.Out, strings.Join(statements, ";\n")+";\n")
	return err
}

func (c *outboxDDLCommand) statements() ([]string, error) {
	dialect := sqlmarker.PostgreSQL
	if c.Dialect == "mysql" {
		dialect = sqlmarker.MySQL
	}
	table := cmp.Or(c.Table, "msghandler_"+c.Kind)
	switch {
	case c.Kind == "outbox" && c.Producer == "":
		return nil, errors.New("--producer is missing; name the producer whose messages the table holds")
	case c.Kind == "outbox":
		return sqlmarker.OutboxDDL(dialect, c.Producer, table)
	case c.Producer != "":
		return nil, fmt.Errorf("--producer goes with the outbox; each row of the %s names its own", c.Kind)
	case c.Kind == "markers":
		return markersDDL(dialect, table)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: &sql.DB{}, Dialect: dialect, Consumer: "any", Table: table})
	if err != nil {
		return nil, err
	}
	return inbox.DDL()
}

//go:embed ddl
var ddl embed.FS

// markersDDL returns the statements of a table of markers for producers without an SDK.
func markersDDL(dialect sqlmarker.Dialect, table string) ([]string, error) {
	if err := sqldb.CheckName(dialect, table); err != nil {
		return nil, fmt.Errorf("--table: %w", err)
	}
	return sqldb.NewTable(nil, dialect, table, ddl).DDL()
}

type outboxMigrateCommand struct {
	Database string        `xor:"where" required:"" help:"The database of this name in the configuration, outbox.NAME." placeholder:"NAME"`
	DSN      string        `name:"dsn" xor:"where" required:"" help:"The database: postgres://, mysql:// or mariadb://. Other users of this machine can read a password here; --database reads the configuration." placeholder:"URL"`
	Producer string        `help:"The producer of rows whose INSERT names none, with --dsn." placeholder:"NAME"`
	Table    string        `help:"The name of the table, with --dsn (default: msghandler_outbox)." placeholder:"TABLE"`
	Timeout  time.Duration `default:"1m" help:"How long the whole may take."`
}

// Help returns the text below the usage in --help.
func (c *outboxMigrateCommand) Help() string {
	return `The database user must be allowed to create tables, and on PostgreSQL a function and a trigger. A table that is
there is not changed. A coordinator needs fewer rights: SELECT, UPDATE and DELETE on the table.`
}

// Run creates the table.
func (c *outboxMigrateCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := commandline.Positive("timeout", c.Timeout); err != nil {
		return err
	}
	settings, err := c.settings(s)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := sqloutbox.Migrate(ctx, c.Database, settings); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "table %s is ready for producer %s\n", settings.Table, settings.Producer)
	return err
}

// settings are those of the configuration, or of the flags.
func (c *outboxMigrateCommand) settings(s *commandline.Session) (config.Outbox, error) {
	if c.DSN != "" {
		o := config.DefaultOutbox()
		o.DSN, o.Producer = c.DSN, c.Producer
		if c.Table != "" {
			o.Table = c.Table
		}
		if o.Producer == "" {
			return config.Outbox{}, errors.New("--producer is missing; name the producer whose messages the table holds")
		}
		if _, err := address.ParseSQL(c.DSN); err != nil {
			return config.Outbox{}, fmt.Errorf("--dsn %w", err)
		}
		return o, nil
	}
	if c.Producer != "" || c.Table != "" {
		return config.Outbox{}, errors.New("--producer and --table go with --dsn; the configuration has those of --database")
	}
	all, err := s.Load(nil)
	if err != nil {
		return config.Outbox{}, err
	}
	o, known := all.Outbox[c.Database]
	if !known {
		return config.Outbox{}, fmt.Errorf("--database=%s: the configuration has no outbox.%s.dsn; set the key, "+
			"or name one of the databases [%s]", c.Database, c.Database, strings.Join(all.OutboxNames(), ", "))
	}
	return o, nil
}
