package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app/doctor"
)

type verifyProducerCommand struct {
	Name      string        `arg:"" help:"The producer's name, such as orders." name:"PRODUCER"`
	Target    string        `arg:"" optional:"" help:"Where it is called back; default: producers.PRODUCER.target." name:"HOST:PORT"`
	Committed []string      `help:"An id that has committed and whose marker is not deleted yet; the producer must say so." placeholder:"ID"`
	Timeout   time.Duration `default:"1m" help:"How long the whole may take."`
	Output    string        `default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`

	kong.Plugins
	flags *configFlags
}

func newVerifyProducerCommand() verifyProducerCommand {
	flags := newConfigFlags()
	return verifyProducerCommand{flags: flags, Plugins: kong.Plugins{flags.fields.Interface()}}
}

// Run asks the producer, and fails when it breaks the contract.
func (c *verifyProducerCommand) Run(ctx context.Context, s *session) error {
	settings, err := s.load(c.flags.given())
	if err != nil {
		return usageError{err}
	}
	if c.Target == "" && settings.Producers[c.Name].Target == "" {
		return usageError{fmt.Errorf("where is %s? Write: msghandler verify-producer %s HOST:PORT", c.Name, c.Name)}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	found := doctor.Verify(ctx, doctor.Examination{Settings: settings}, c.Name, c.Target, c.Committed...)
	return s.printFindings(found, c.Output)
}
