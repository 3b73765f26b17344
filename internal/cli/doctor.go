package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/connlimit"
)

type doctorCommand struct {
	Producer    map[string]string `help:"Ask this producer too: --producer orders=orders.svc:9000" mapsep:"none" placeholder:"NAME=HOST:PORT"`
	DeadLetters []string          `help:"Look at this dead-letter queue too, beside events.dead_letter_queues: payments.dead" placeholder:"QUEUE"`
	Timeout     time.Duration     `default:"10s" help:"How long one part may be looked at."`
	FailOn      string            `default:"trouble" enum:"trouble,warning,never" help:"The exit status is 1 from this severity on: trouble or warning; never: only where the findings cannot be printed."`
	Output      string            `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
	commandline.CoordinatorFlags

	kong.Plugins
	flags *commandline.ConfigFlags
}

func newDoctorCommand() doctorCommand {
	flags := commandline.NewConfigFlags(
		commandline.Beginning("redis.url", "amqp.url", "callbacks.allow", "confirm.timeout"),
	)
	return doctorCommand{flags: flags, Plugins: flags.Plugins()}
}

// Help returns the text below the usage in --help.
func (c *doctorCommand) Help() string {
	return `doctor changes nothing: it only reads Redis, its test message can reach no queue, and producers are asked
about an id that cannot exist, for which they must not answer COMMITTED. Give doctor the coordinator's configuration:
a problem with a default that was not set on purpose is only a warning. Producers that attend are asked through the
coordinator, at most 20. Producers that pending messages name are asked too, at most 20 targets, where callbacks.allow
is configured and allows them. Each finding names the page that explains the finding.

Without --server, doctor asks the coordinator that this machine runs with the configuration: on the loopback where
grpc.addr is an address of all interfaces, and with TLS where grpc.tls_cert is set. Every key of the configuration is a
flag too: msghandler serve --help lists all.

The exit status is 1 when there is trouble, and 0 otherwise: warnings are no failure unless --fail-on=warning says so.
With --fail-on=never trouble is no failure either. The status is 2 for wrong usage, or a configuration that cannot be
read.`
}

// errTrouble ends an examination with trouble.
var errTrouble = errors.New("there is trouble; what it is, why it matters and what to do is said above")

// Run examines everything and fails when there is trouble.
func (c *doctorCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := commandline.Positive("timeout", c.Timeout); err != nil {
		return err
	}
	flags := c.flags.Given()
	settings, err := s.Load(flags)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	at, err := c.Coordinator(s, flags)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	stop := s.Progress().During("looking")
	found := doctor.Examine(ctx, doctor.Examination{
		Settings: settings, Coordinator: doctor.Coordinator(at), Producers: c.Producer, Timeout: c.Timeout,
		Defaults:         s.Sources(flags).Defaults(doctor.Sections()...),
		DeadLetterQueues: c.DeadLetters,
		Descriptors:      connlimit.Descriptors(),
	})
	stop()
	return failOn(c.FailOn, found, printFindings(s, found, c.Output))
}

// errWarnings ends an examination with warnings that count as failures.
var errWarnings = errors.New("there are warnings, and --fail-on=warning counts them; they are printed above")

// failOn is the error of an examination whose findings were printed, for a value of --fail-on.
func failOn(severity string, found []doctor.Finding, printed error) error {
	switch {
	case severity == "never" && errors.Is(printed, errTrouble):
		return nil
	case severity == "warning" && printed == nil && doctor.Worst(found) >= doctor.Warning:
		return errWarnings
	}
	return printed
}

// finding is a finding for programs.
type finding struct {
	Area     string `json:"area,omitempty"`
	Check    string `json:"check,omitempty"`
	Name     string `json:"name,omitempty"`
	Severity string `json:"severity"`
	What     string `json:"what"`
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Page     string `json:"page,omitempty"`
	Follows  string `json:"follows,omitempty"`
	// The rest is of the findings of coordinators: since when, until when, where, and the figure now and at the start.
	StartedAt    *time.Time `json:"started_at,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	Coordinators []string   `json:"coordinators,omitempty"`
	Count        int64      `json:"count,omitempty"`
	StartCount   int64      `json:"start_count,omitempty"`
}

// pageOf is where a finding is explained; empty for a healthy part.
func pageOf(f doctor.Finding) string {
	if f.Name == "" {
		return ""
	}
	return cause.Page(f.Name)
}

// printFindings prints the findings, and fails when there is trouble. Warnings alone are no failure.
func printFindings(s *commandline.Session, found []doctor.Finding, output string) error {
	if err := s.PrintDocument(output, findingsOf(found), func() [][]string { return rowsOf(found) }); err != nil {
		return fmt.Errorf("print findings: %w", err)
	}
	if doctor.Worst(found) == doctor.Trouble {
		return errTrouble
	}
	return nil
}

func findingsOf(found []doctor.Finding) []finding {
	all := make([]finding, len(found))
	for i, f := range found {
		all[i] = finding{
			Area: f.Area, Check: f.Check, Name: f.Name, Severity: f.Severity.String(), What: f.What, Why: f.Why,
			Remedy: f.Remedy, Page: pageOf(f), Follows: f.Follows,
		}
	}
	return all
}

func rowsOf(found []doctor.Finding) (rows [][]string) {
	for _, f := range found {
		rows = append(rows, []string{strings.ToUpper(f.Severity.String()), f.Area, f.What})
		switch {
		case f.Follows != "":
			rows = append(rows, []string{"", "", "do:   nothing; it follows " + f.Follows + ", and ends with it"},
				[]string{"", "", "name: " + f.Name})
		case f.Severity != doctor.OK:
			rows = append(rows, []string{"", "", "why:  " + f.Why}, []string{"", "", "do:   " + f.Remedy},
				[]string{"", "", "name: " + f.Name}, []string{"", "", "page: " + pageOf(f)})
		}
	}
	return rows
}
