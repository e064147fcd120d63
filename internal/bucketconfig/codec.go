package bucketconfig

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

// Encode checks a record and makes it what stands in Redis: JSON under flate. Equal records give equal bytes from one
// build of this program.
func Encode(record *Record) ([]byte, error) {
	if err := record.Validate(); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode record %q: %w", record.Name, err)
	}
	if len(text) > MaxRecordJSON {
		return nil, fmt.Errorf("encode record %q: %d bytes of JSON exceed %d: state fewer or shorter matches", record.Name, len(text), MaxRecordJSON)
	}
	data, err := deflate(text)
	if err != nil {
		return nil, fmt.Errorf("encode record %q: %w", record.Name, err)
	}
	if len(data) > MaxRecordSize {
		return nil, fmt.Errorf("encode record %q: %d bytes compressed exceed %d: state fewer or shorter matches", record.Name, len(data), MaxRecordSize)
	}
	return data, nil
}

// Decode reads and checks a record. One of an older schema version comes back as what it means in this one. The error is a
// *VersionError when the version is unknown. It never takes more memory than the bounds allow, whatever data holds.
func Decode(data []byte) (*Record, error) {
	if len(data) > MaxRecordSize {
		return nil, fmt.Errorf("decode record: %d bytes exceed %d", len(data), MaxRecordSize)
	}
	text, err := inflate(data, MaxRecordJSON)
	if err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	if err := checkSchema(text); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	record := &Record{}
	if err := json.Unmarshal(text, record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	if err := record.Validate(); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	record.Schema = SchemaVersion
	return record, nil
}

// Digest names the content of a stored value: 128 bits of its SHA-256. Two values of one digest are one value.
func Digest(value []byte) string {
	sum := sha256.Sum256(value)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// EncodeShare makes a share what stands in Redis.
func EncodeShare(share Share) ([]byte, error) {
	if err := share.validate(); err != nil {
		return nil, fmt.Errorf("encode share: %w", err)
	}
	return json.Marshal(share)
}

// DecodeShare reads and checks a share.
func DecodeShare(data []byte) (Share, error) {
	var share Share
	if len(data) > MaxString {
		return Share{}, fmt.Errorf("decode share: %d bytes exceed %d", len(data), MaxString)
	}
	if err := json.Unmarshal(data, &share); err != nil {
		return Share{}, fmt.Errorf("decode share: %w", err)
	}
	if err := share.validate(); err != nil {
		return Share{}, fmt.Errorf("decode share: %w", err)
	}
	return share, nil
}

func (s Share) validate() error {
	return inRange("sidecars", int64(s.Sidecars), 1, MaxSidecars)
}

func deflate(text []byte) ([]byte, error) {
	var buffer bytes.Buffer
	writer, err := flate.NewWriter(&buffer, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(text); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// inflate refuses what is longer than limit before it holds it, and bytes after the end of the stream.
func inflate(data []byte, limit int) ([]byte, error) {
	source := bytes.NewReader(data)
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(source), int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, fmt.Errorf("more than %d bytes when decompressed", limit)
	}
	if source.Len() > 0 {
		return nil, fmt.Errorf("%d bytes after the end", source.Len())
	}
	return text, nil
}
