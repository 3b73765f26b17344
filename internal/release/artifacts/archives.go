package artifacts

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// file is a file of an archive. A name that ends with a slash is a directory.
type file struct {
	name, source string
	mode         int64
	owner        int
}

// archives writes an archive for each platform.
func (r *release) archives() error {
	for _, p := range r.platforms {
		top := fmt.Sprintf("msghandler_%s_%s", r.number(), p)
		files := r.archived(p)
		for i := range files {
			files[i].name = top + "/" + files[i].name
		}
		if err := r.writeArchive(filepath.Join(r.out, top+".tar.gz"), files); err != nil {
			return err
		}
	}
	return nil
}

// archived are the files of an archive.
func (r *release) archived(p platform) []file {
	var files []file
	for _, name := range names {
		files = append(files, file{name: name, source: r.program(p, name), mode: 0o755})
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "config.example.yaml"} {
		files = append(files, file{name: name, source: r.source(name), mode: 0o644})
	}
	files = append(files,
		file{name: "prometheus/alerts.yaml", source: r.source("deploy/prometheus/alerts.yaml"), mode: 0o644},
		file{name: "grafana/msghandler.json", source: r.source("deploy/grafana/msghandler.json"), mode: 0o644},
		file{name: "man/msghandler.1", source: r.documentPath("msghandler.1"), mode: 0o644},
	)
	for _, shell := range shells {
		files = append(files, file{name: shell.archived, source: r.documentPath(shell.name), mode: 0o644})
	}
	if p.os == "linux" {
		unit := r.source("deploy/systemd/msghandler.service")
		files = append(files, file{name: "systemd/msghandler.service", source: unit, mode: 0o644})
	}
	return files
}

// writeArchive writes files as a compressed archive.
func (r *release) writeArchive(path string, files []file) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zipped, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(zipped, files, r.at); err != nil {
		return err
	}
	return zipped.Close()
}

// writeTar writes files, all of the same time.
func writeTar(w io.Writer, files []file, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, ModTime: at, Uid: f.owner, Gid: f.owner, Format: tar.FormatUSTAR}
		if f.source == "" {
			header.Typeflag = tar.TypeDir
			if err := archive.WriteHeader(header); err != nil {
				return err
			}
			continue
		}
		data, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		header.Size = int64(len(data))
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}
