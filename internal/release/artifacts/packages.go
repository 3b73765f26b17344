package artifacts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // nfpm.Get finds it
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // nfpm.Get finds it

	"github.com/msghandler/msghandler/internal/release/modules"
)

// packages writes a deb and an rpm for each platform of Linux.
func (r *release) packages() error {
	for _, p := range r.onLinux() {
		for _, kind := range []string{"deb", "rpm"} {
			if err := r.packageOf(p, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) packageOf(p platform, kind string) (err error) {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "msghandler", Version: r.number(), Release: "1", Arch: p.arch, Platform: p.os, MTime: r.at,
		Section: "net", Priority: "optional", License: "Apache-2.0", Homepage: "https://" + modules.Root,
		Maintainer: "The msghandler authors <https://" + modules.Root + "/issues>",
		Description: "Coordinator for half messages\n" +
			"A producer stores a message before its local transaction, and the\n" +
			"coordinator publishes it once that transaction is known to have committed.",
		DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: r.packaged(p, kind), Scripts: r.scripts(kind), Umask: 0o022,
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "Coordinator for half messages"},
		},
	})
	switch kind {
	case "deb":
		info.Depends = []string{"init-system-helpers (>= 1.54~)", "passwd"}
		info.Suggests = []string{"redis-server", "rabbitmq-server"}
	case "rpm":
		info.Depends = []string{"shadow-utils"}
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return packager.Package(info, f)
}

// packaged are the files of a package.
func (r *release) packaged(p platform, kind string) files.Contents {
	entry := func(source, destination string, mode fs.FileMode) *files.Content {
		return &files.Content{
			Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.at},
		}
	}
	directory := entry("", "/etc/msghandler", 0o750)
	directory.Type = files.TypeDir
	configuration := entry(r.source("config.example.yaml"), "/etc/msghandler/msghandler.yaml", 0o640)
	configuration.Type = files.TypeConfigNoReplace
	const docs = "/usr/share/doc/msghandler/"
	contents := files.Contents{
		directory, configuration,
		entry(r.program(p, "msghandler"), "/usr/bin/msghandler", 0o755),
		entry(r.documentPath("msghandler.service"), "/usr/lib/systemd/system/msghandler.service", 0o644),
		entry(r.documentPath("msghandler.1.gz"), "/usr/share/man/man1/msghandler.1.gz", 0o644),
		entry(r.source("LICENSE"), docs+"copyright", 0o644),
		entry(r.source("README.md"), docs+"README.md", 0o644),
		entry(r.source("CHANGELOG.md"), docs+"CHANGELOG.md", 0o644),
		entry(r.source("deploy/prometheus/alerts.yaml"), docs+"prometheus/alerts.yaml", 0o644),
		entry(r.source("deploy/grafana/msghandler.json"), docs+"grafana/msghandler.json", 0o644),
	}
	for _, shell := range shells {
		contents = append(contents, entry(r.documentPath(shell.name), shell.packaged[kind], 0o644))
	}
	return contents
}

// scripts are what a package runs on the machine of its user.
func (r *release) scripts(kind string) nfpm.Scripts {
	of := func(name string) string { return r.source("deploy/packages/" + kind + "/" + name) }
	if kind == "deb" {
		return nfpm.Scripts{PostInstall: of("postinst"), PreRemove: of("prerm"), PostRemove: of("postrm")}
	}
	return nfpm.Scripts{PostInstall: of("post"), PreRemove: of("preun"), PostRemove: of("postun")}
}
