package artifacts

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
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

// image writes an image for the platforms of Linux, as an archive of an OCI layout.
func (r *release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.onLinux() {
		image, err := r.imageOf(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	dir := filepath.Join(r.work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	reference := map[string]string{"org.opencontainers.image.ref.name": r.number()}
	if err := path.AppendIndex(index, layout.WithAnnotations(reference)); err != nil {
		return err
	}
	return r.archiveLayout(dir)
}

// archiveLayout writes a directory as an archive: the blobs are compressed already.
func (r *release) archiveLayout(dir string) error {
	var inside []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		inside = append(inside, file{name: filepath.ToSlash(name), source: path, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, "msghandler_"+r.number()+"_image.tar"))
	if err != nil {
		return err
	}
	if err := writeTar(f, inside, r.at); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// imageOf makes the image of a platform: what programs need of a system, and the programs.
func (r *release) imageOf(p platform) (v1.Image, error) {
	if err := r.document("ca-certificates.crt", authorities()); err != nil {
		return nil, err
	}
	const accounts = "root:x:0:0::/:/sbin/nologin\nmsghandler:x:65532:65532::/data:/sbin/nologin\n"
	if err := r.document("passwd", []byte(accounts)); err != nil {
		return nil, err
	}
	system := []file{
		{name: "data/", mode: 0o700, owner: nonRoot},
		{name: "etc/passwd", source: r.documentPath("passwd"), mode: 0o644},
		{name: "etc/ssl/certs/ca-certificates.crt", source: r.documentPath("ca-certificates.crt"), mode: 0o644},
	}
	var programs []file
	for _, name := range imageNames {
		programs = append(programs, file{name: name, source: r.program(p, name), mode: 0o755})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var history []v1.History
	for _, files := range [][]file{system, programs} {
		layer, err := r.layer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
		history = append(history, v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "make release"})
	}
	settings, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	settings = settings.DeepCopy()
	settings.OS, settings.Architecture = p.os, p.arch
	settings.Created = v1.Time{Time: r.at}
	settings.History = history
	settings.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/msghandler"}, Cmd: []string{"serve"},
		ExposedPorts: map[string]struct{}{"9090/tcp": {}, "9091/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "msghandler", "org.opencontainers.image.version": r.number(),
			"org.opencontainers.image.source": "https://" + modules.Root, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, settings)
}

func (r *release) layer(files []file) (v1.Layer, error) {
	var data bytes.Buffer
	if err := writeTar(&data, files, r.at); err != nil {
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
