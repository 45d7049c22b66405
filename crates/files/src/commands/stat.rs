//! `backstitch stat IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Image, with_files};
use crate::paths::ImagePath;
use crate::show;
use backstitch_vfs::FileType;
use serde_json::{Value, json};
use std::ffi::OsString;

/// Show the attributes of files in an image, extended attributes among them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch stat disk.img:/etc/passwd
  backstitch stat --json disk.img:/etc/passwd | jq '.[0].size_bytes'")]
pub struct Args {
    /// IMAGE:/path; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Follow a symbolic link at the end
    #[arg(short = 'L', long)]
    dereference: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Prints the attributes of the files.
pub fn run(args: &Args) -> Result<()> {
    let paths: Vec<ImagePath> = args.paths.iter().map(|w| ImagePath::or_root(w)).collect();
    let mut found = Vec::new();
    with_files("stat", Access::Read, &paths, |image, path| {
        found.push(describe(args, image, &image.place(path))?);
        Ok(())
    })?;
    if args.json {
        return show::print_json("stat", &found);
    }
    for (index, value) in found.iter().enumerate() {
        if index > 0 {
            show::print_bytes("stat", b"\n")?;
        }
        show::print_table("stat", &rows(value))?;
    }
    Ok(())
}

fn describe(args: &Args, image: &Image, path: &ImagePath) -> Result<Value> {
    let failed = |error| image.error(&path.path, error);
    let held = image.resolve(&path.path, args.dereference)?;
    let target = match held.attributes.file_type {
        FileType::Symlink => Some(image.engine.read_link(held.inode()).map_err(failed)?),
        _ => None,
    };
    let mut value = show::attributes_json(&held.attributes, target.as_deref());
    value["path"] = String::from_utf8_lossy(&path.path).into();
    value["image"] = path.image.display().to_string().into();
    let names = image.engine.list_xattrs(held.inode()).map_err(failed)?;
    let mut xattrs = serde_json::Map::new();
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let bytes = image.engine.get_xattr(held.inode(), name).map_err(failed)?;
        xattrs.insert(
            String::from_utf8_lossy(name).into_owned(),
            xattr_value(&bytes),
        );
    }
    value["xattrs"] = Value::Object(xattrs);
    Ok(value)
}

/// An attribute's value as text if it is text, else in hexadecimal digits.
pub(super) fn xattr_value(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => json!(text),
        _ => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": digits })
        }
    }
}

fn rows(value: &Value) -> Vec<[String; 2]> {
    const ORDER: [&str; 17] = [
        "path",
        "image",
        "file_type",
        "target",
        "device",
        "mode",
        "uid",
        "gid",
        "links",
        "inode",
        "generation",
        "size_bytes",
        "allocated_bytes",
        "accessed",
        "modified",
        "changed",
        "created",
    ];
    let mut rows = Vec::new();
    for name in ORDER {
        let text = match &value[name] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Object(parts) => format!("{}, {}", parts["major"], parts["minor"]),
            other => other.to_string(),
        };
        rows.push([name.replace('_', " "), text]);
    }
    if let Some(xattrs) = value["xattrs"].as_object() {
        for (name, value) in xattrs {
            let text = value.as_str().map_or_else(
                || value["hex"].as_str().unwrap_or_default().to_owned(),
                str::to_owned,
            );
            rows.push([name.clone(), text]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_where_they_can_be() {
        assert_eq!(xattr_value(b"blue"), json!("blue"));
        assert_eq!(xattr_value(&[2, 0]), json!({ "hex": "0200" }));
    }

    #[test]
    fn rows_have_what_there_is() {
        let value = json!({
            "path": "/x", "device": {"major": 1, "minor": 3}, "links": 1, "created": null,
            "xattrs": {"user.a": "b", "user.c": {"hex": "00"}},
        });
        let names: Vec<String> = rows(&value).into_iter().map(|[name, _]| name).collect();
        assert_eq!(names, ["path", "device", "links", "user.a", "user.c"]);
    }
}
