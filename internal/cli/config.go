package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type configCommand struct {
	adminFlags
	All  bool   `short:"a" help:"Print the keys with their defaults too."`
	Diff string `help:"Compare with this configuration file, without the environment: print the keys that differ." placeholder:"FILE"`
}

// Help returns the text below the usage in --help.
func (c *configCommand) Help() string {
	return `config prints the configuration that a running coordinator uses, and where each value comes from. Secrets
are not shown. A key that waits for a restart has the value in use. With --diff the exit status is 1 when a key
differs, and 0 otherwise; secrets are compared as far as they are shown. grpc.addr and http.addr are of one process, so
they count as little as between coordinators.`
}

// errDiffers ends a comparison that found differences.
var errDiffers = errors.New("the coordinator's configuration differs from the file")

// configValue is a key in --output json. The names of its fields are part of the product.
type configValue struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Origin  string `json:"origin,omitempty"`
	// NeedsRestart says that another value takes effect with the next start only.
	NeedsRestart bool `json:"needs_restart"`
}

// configDifference is a key that differs, in --output json. The names of its fields are part of the product.
type configDifference struct {
	Key     string `json:"key"`
	Running string `json:"running"`
	File    string `json:"file"`
	Origin  string `json:"origin,omitempty"`
}

// Run prints the configuration of a running coordinator, or compares it with a file.
func (c *configCommand) Run(ctx context.Context, s *commandline.Session) error {
	var file *config.Current
	if c.Diff != "" {
		var err error
		if file, err = config.Open(config.Sources{File: c.Diff}); err != nil {
			return commandline.UsageError{Err: err}
		}
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	answer, err := a.client.GetConfiguration(ctx, &adminv1.GetConfigurationRequest{})
	if err != nil {
		return err
	}
	if file != nil {
		return c.compare(s, answer, file)
	}
	var values []configValue
	for _, v := range answer.GetValues() {
		if c.All || v.GetValue() != v.GetDefaultValue() {
			values = append(values, configValue{
				v.GetKey(), v.GetValue(), v.GetDefaultValue(), v.GetOrigin(), v.GetNeedsRestart(),
			})
		}
	}
	document := map[string]any{"instance": answer.GetInstance(), "version": answer.GetVersion(), "values": values}
	return s.PrintDocument(c.Output, document, func() [][]string {
		rows := [][]string{{"KEY", "VALUE", "FROM"}}
		for _, v := range values {
			rows = append(rows, []string{v.Key, cmp.Or(v.Value, "-"), cmp.Or(v.Origin, "default")})
		}
		return rows
	})
}

// compare prints the keys that differ from a file.
func (c *configCommand) compare(
	s *commandline.Session, answer *adminv1.GetConfigurationResponse, file *config.Current,
) error {
	differences := differencesOf(answer.GetValues(), file.Effective())
	err := s.PrintDocument(c.Output, differences, func() [][]string {
		rows := [][]string{{"KEY", "RUNNING", "FILE", "RUNNING VALUE FROM"}}
		for _, d := range differences {
			rows = append(rows, []string{d.Key, cmp.Or(d.Running, "-"), cmp.Or(d.File, "-"), cmp.Or(d.Origin, "default")})
		}
		return rows
	})
	if err == nil && len(differences) > 0 {
		return errDiffers
	}
	return err
}

// differencesOf lists the keys with different values, in the order of the running coordinator, then those of the file
// alone. Keys of one process differ by design.
func differencesOf(running []*adminv1.ConfigurationValue, file []config.Value) []configDifference {
	left := map[string]config.Value{}
	for _, v := range file {
		left[v.Key] = v
	}
	differences := []configDifference{}
	for _, v := range running {
		other, known := left[v.GetKey()]
		delete(left, v.GetKey())
		if !known {
			other.Value = v.GetDefaultValue()
		}
		if other.Value != v.GetValue() && !config.OfOneProcess(v.GetKey()) {
			differences = append(differences, configDifference{v.GetKey(), v.GetValue(), other.Value, v.GetOrigin()})
		}
	}
	for _, v := range file {
		if _, only := left[v.Key]; only && v.Value != v.Default && !config.OfOneProcess(v.Key) {
			differences = append(differences, configDifference{Key: v.Key, Running: v.Default, File: v.Value})
		}
	}
	return differences
}
