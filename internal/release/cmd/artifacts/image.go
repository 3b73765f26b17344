package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	blank "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/msghandler/msghandler/internal/release/modules"
)

// nonRoot is the user of the image, as in the Dockerfile.
const nonRoot = 65532

// imageNames are the programs of the image. The demos are for a checkout: its Dockerfile has them.
var imageNames = []string{"msghandler", "msghandler-bench"}

// image writes an image for the platforms of Linux: a directory with an OCI layout.
func (r *release) image() error {
	platforms, err := r.platforms("linux")
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(blank.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		image, err := r.imageOf(platform)
		if err != nil {
			return err
		}
		_, arch, _ := strings.Cut(platform, "_")
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	path, err := layout.Write(filepath.Join(r.Programs, "image"), blank.Index)
	if err != nil {
		return err
	}
	reference := map[string]string{"org.opencontainers.image.ref.name": r.Version}
	return path.AppendIndex(index, layout.WithAnnotations(reference))
}

// imageOf makes the image of a platform: what programs need of a system, and the programs.
func (r *release) imageOf(platform string) (v1.Image, error) {
	const accounts = "root:x:0:0::/:/sbin/nologin\nmsghandler:x:65532:65532::/data:/sbin/nologin\n"
	layers := [][]file{{
		{name: "data/", mode: 0o700, owner: nonRoot},
		{name: "etc/passwd", mode: 0o644, content: []byte(accounts)},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
	}, nil}
	for _, name := range imageNames {
		program, err := os.ReadFile(r.program(platform, name))
		if err != nil {
			return nil, err
		}
		layers[1] = append(layers[1], file{name: name, mode: 0o755, content: program})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(blank.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var history []v1.History
	for _, files := range layers {
		layer, err := r.layer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
		history = append(history, v1.History{Created: v1.Time{Time: r.At}, CreatedBy: "make release"})
	}
	settings, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	settings = settings.DeepCopy()
	settings.OS, settings.Architecture, _ = strings.Cut(platform, "_")
	settings.Created = v1.Time{Time: r.At}
	settings.History = history
	settings.Config = r.settings()
	return mutate.ConfigFile(image, settings)
}

func (r *release) settings() v1.Config {
	return v1.Config{
		User: "65532:65532", Entrypoint: []string{"/msghandler"}, Cmd: []string{"serve"},
		ExposedPorts: map[string]struct{}{"9090/tcp": {}, "9091/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "msghandler", "org.opencontainers.image.version": r.Version,
			"org.opencontainers.image.source": "https://" + modules.Root, "org.opencontainers.image.revision": r.Commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}

// file is a file of a layer. A name that ends with a slash is a directory.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// layer makes a layer of files, all of the commit's time.
func (r *release) layer(files []file) (v1.Layer, error) {
	var data bytes.Buffer
	archive := tar.NewWriter(&data)
	for _, f := range files {
		header := &tar.Header{
			Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: r.At, Uid: f.owner, Gid: f.owner,
			Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// authorities are the certificates that Mozilla trusts, for rediss:// and amqps://, in the version of go.mod. Those
// that are trusted with a condition are left out: a file cannot say the condition.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}
