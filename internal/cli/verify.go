package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

type verifyProducerCommand struct {
	Name         string        `arg:"" help:"The producer's name, such as orders." name:"PRODUCER"`
	Target       string        `arg:"" optional:"" help:"Where it is called back, HOST:PORT for gRPC or a URL for HTTP; default: producers.PRODUCER.target, or its streams to the coordinators, where it attends." name:"TARGET"`
	Committed    []string      `help:"An id that has committed and whose marker is not deleted yet; the producer must say so." placeholder:"ID"`
	Running      []string      `help:"An id whose transaction runs now and has written its marker; the producer must decide nothing." placeholder:"ID"`
	RolledBack   []string      `help:"An id that was rolled back, such as before the producer's restart; the producer must say so." placeholder:"ID"`
	Deleted      []string      `help:"An id that has committed and whose marker the coordinator has had deleted; the producer must still say COMMITTED." placeholder:"ID"`
	DatabaseAway bool          `help:"The producer's database is away on purpose: only ask how the producer answers without it."`
	FailOn       string        `default:"trouble" enum:"trouble,warning" help:"The exit status is 1 from this severity on: trouble or warning."`
	JUnit        string        `name:"junit" help:"Write a report for CI systems to this file, as JUnit XML: a test case for each check." placeholder:"FILE" type:"path"`
	Timeout      time.Duration `default:"1m" help:"How long the whole may take."`
	Output       string        `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
	commandline.CoordinatorFlags

	kong.Plugins
	flags *commandline.ConfigFlags
}

func newVerifyProducerCommand() verifyProducerCommand {
	flags := commandline.NewConfigFlags(commandline.Beginning("callbacks.", "confirm.timeout"))
	return verifyProducerCommand{flags: flags, Plugins: flags.Plugins()}
}

// Help returns the text below the usage in --help.
func (c *verifyProducerCommand) Help() string {
	return `For a new producer, or a producer that may break the contract, by hand or as a step of CI. Its target is
HOST:PORT for gRPC, or the URL below which it takes POST /confirm and POST /deleteBusiness. callbacks.allow must allow
its target, as for a coordinator; without a configuration the target is not checked. A producer without a target
attends: a running coordinator asks it over its streams, and the caller needs the role of an operator there.

The producer is asked about ids that cannot exist: many at once, the longest, the same id twice, and none; for another
producer's name; on several connections; and several times at once. A final question leaves a tombstone there. The
producer also gets a request to delete markers that do not exist.

The exit status is 0 when the producer keeps the contract. It is 1 when the producer breaks the contract, --timeout was
over before the last check, or the report cannot be written. It is 2 for wrong usage, or a configuration that cannot be
read. It is 4 when the producer was not reached or refuses this caller, so that nothing is known. Warnings are no
failure unless --fail-on=warning says so. docs/reference/findings.md lists mistakes of producers, and which of
them are found. Every key of the configuration is a flag too: msghandler serve --help lists all.`
}

// Run asks the producer, and fails when the producer breaks the contract.
func (c *verifyProducerCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := commandline.Positive("timeout", c.Timeout); err != nil {
		return err
	}
	flags := c.flags.Given()
	settings, err := s.Load(flags)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	var at commandline.Coordinator
	target := c.Target
	if target == "" && settings.Producers[c.Name].Target == "" {
		target = halfmsg.AttendTarget(c.Name)
		if at, err = c.Coordinator(s, flags); err != nil {
			return commandline.UsageError{Err: err}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	began, stop := time.Now(), s.Progress().During("asking "+c.Name)
	found := doctor.Verify(ctx, doctor.Examination{
		Settings: settings, Defaults: s.Sources(flags).Defaults(doctor.Sections()...),
		Known:        doctor.Known{Running: c.Running, RolledBack: c.RolledBack, Deleted: c.Deleted},
		DatabaseAway: c.DatabaseAway, Coordinator: doctor.Coordinator(at),
	}, c.Name, target, c.Committed...)
	stop()
	return c.report(s, found, began)
}

// report prints and writes the findings, and returns the error that says how the command ends.
func (c *verifyProducerCommand) report(s *commandline.Session, found []doctor.Finding, began time.Time) error {
	failed := printFindings(s, found, c.Output)
	if failed != nil && !errors.Is(failed, errTrouble) {
		return failed
	}
	least := doctor.Trouble
	if c.FailOn == "warning" {
		least = doctor.Warning
	}
	if c.JUnit != "" {
		//nolint:gosec // others read the report
		if err := os.WriteFile(c.JUnit, junitReport(c.Name, found, least, began), 0o644); err != nil {
			return fmt.Errorf("--junit: the report is not written: %w; name a file that this user may write", err)
		}
	}
	if doctor.Unreached(found) {
		return commandline.UnreachedError{
			Err: fmt.Errorf("%s was not examined, so nothing is known of how it keeps the contract; "+
				"the reason is printed above", c.Name),
		}
	}
	return failOn(c.FailOn, found, failed)
}
