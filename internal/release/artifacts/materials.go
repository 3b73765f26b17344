package artifacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// materials writes the bill of materials of each program: its modules with versions and checksums, as the program
// itself knows them.
func (r *release) materials() error {
	for _, p := range r.platforms {
		for _, name := range names {
			if err := r.materialsOf(p, name); err != nil {
				return fmt.Errorf("of %s for %s: %w", name, p, err)
			}
		}
	}
	return nil
}

func (r *release) materialsOf(p platform, name string) (err error) {
	generator, err := bin.NewGenerator(r.program(p, name), bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bill, err := generator.Generate()
	if err != nil {
		return err
	}
	bill.Metadata.Timestamp = r.at.Format(time.RFC3339)
	f, err := os.Create(filepath.Join(r.out, fmt.Sprintf("%s_%s_%s.cdx.json", name, r.number(), p)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
}
