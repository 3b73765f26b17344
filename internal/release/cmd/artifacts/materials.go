package main

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
	platforms, err := r.platforms("*")
	if err != nil {
		return err
	}
	for _, platform := range platforms {
		for _, name := range names {
			if err := r.materialsOf(platform, name); err != nil {
				return fmt.Errorf("bill of %s for %s: %w", name, platform, err)
			}
		}
	}
	return nil
}

func (r *release) materialsOf(platform, name string) (err error) {
	program := r.program(platform, name)
	generator, err := bin.NewGenerator(program, bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bill, err := generator.Generate()
	if err != nil {
		return err
	}
	bill.Metadata.Timestamp = r.At.Format(time.RFC3339)
	f, err := os.Create(filepath.Join(r.Out, fmt.Sprintf("%s_%s_%s.cdx.json", name, r.Version, platform)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
}
