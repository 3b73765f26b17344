// Package objects reads manifests as Kubernetes would, and sums up the sources of rendered manifests.
package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Sum is a checksum of the names and contents of all files of the folders.
func Sum(folders ...string) (string, error) {
	sum := sha256.New()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(folder, path)
			if err != nil {
				return err
			}
			one := sha256.Sum256(content)
			_, err = io.WriteString(sum, filepath.ToSlash(name)+" "+hex.EncodeToString(one[:])+"\n")
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)) + "\n", nil
}
