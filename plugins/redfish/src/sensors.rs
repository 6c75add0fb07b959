//! What a BMC measures.
//!
//! **Invariant:** a reading that is not there is said to be unknown, with the reason, and never a number.

use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::system::ROOT;
use crate::{Problem, text};

/// The most readings that are taken.
const MAX_READINGS: usize = 1024;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Degrees Celsius.
    Temperature,
    /// RPM or percent.
    Fan,
    /// Watts.
    Power,
    /// Volts.
    Voltage,
}

/// How a reading stands to its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The BMC says that it is well, or it is within its limits.
    Ok,
    /// The BMC says so, or it is beyond its limit.
    Warning,
    /// Likewise.
    Critical,
    /// There is no reading.
    Unknown,
    /// What it would measure is not installed.
    Absent,
}

/// One sensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// The chassis that it belongs to.
    pub chassis: String,
    /// Its name.
    pub name: String,
    /// What it measures.
    pub quantity: Quantity,
    /// The reading; null where there is none.
    pub value: Option<f64>,
    /// `celsius`, `rpm`, `percent`, `watts` or `volts`
    pub unit: String,
    /// How it stands.
    pub standing: Standing,
    /// Why it is not ok.
    pub reason: Option<String>,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readings {
    /// Sensors.
    pub readings: Vec<Reading>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

/// A list of a resource, and how its members are read.
struct List {
    field: &'static str,
    quantity: Quantity,
    /// Where the reading stands; the first that is there.
    values: &'static [&'static str],
    unit: &'static str,
}

const THERMAL: [List; 2] = [
    List { field: "Temperatures", quantity: Quantity::Temperature, values: &["ReadingCelsius"], unit: "celsius" },
    List { field: "Fans", quantity: Quantity::Fan, values: &["Reading", "ReadingRPM"], unit: "rpm" },
];

const POWER: [List; 3] = [
    List { field: "PowerControl", quantity: Quantity::Power, values: &["PowerConsumedWatts"], unit: "watts" },
    List {
        field: "PowerSupplies",
        quantity: Quantity::Power,
        values: &["PowerInputWatts", "PowerOutputWatts"],
        unit: "watts",
    },
    List { field: "Voltages", quantity: Quantity::Voltage, values: &["ReadingVolts"], unit: "volts" },
];

/// Reads every chassis of a BMC. Errors only when the BMC itself cannot be asked.
pub fn read(client: &mut Client<'_>) -> Result<Readings, Problem> {
    let root = client.get(ROOT)?;
    let Some(collection) = text(&root.body, "/Chassis/@odata.id").map(str::to_owned) else {
        return Err(Problem::new("not-supported", "the BMC names no chassis"));
    };
    let mut found = Readings::default();
    for path in client.members(&collection)? {
        match client.get(&path) {
            Ok(chassis) => of_chassis(client, &chassis.body, &path, &mut found),
            Err(problem) => found.problems.push(problem.to_string()),
        }
    }
    Ok(found)
}

fn of_chassis(client: &mut Client<'_>, chassis: &Value, path: &str, found: &mut Readings) {
    let name = text(chassis, "/Id").or_else(|| path.rsplit('/').next()).unwrap_or_default().to_owned();
    let lists: [(&str, &[List]); 2] = [("Thermal", &THERMAL), ("Power", &POWER)];
    let mut is_any = false;
    for (part, lists) in lists {
        let Some(path) = text(chassis, &format!("/{part}/@odata.id")) else { continue };
        is_any = true;
        match client.get(path) {
            Ok(resource) => lists.iter().for_each(|list| of_list(&resource.body, list, &name, found)),
            Err(problem) => found.problems.push(format!("chassis {name}: {problem}")),
        }
    }
    // Newer BMCs have one list of sensors instead.
    if is_any {
        return;
    }
    let Some(path) = text(chassis, "/Sensors/@odata.id") else {
        found.problems.push(format!("chassis {name}: the BMC offers no sensors"));
        return;
    };
    match client.members(path) {
        Err(problem) => found.problems.push(format!("chassis {name}: {problem}")),
        Ok(members) => {
            for path in members {
                match client.get(&path) {
                    Ok(sensor) => found.readings.extend(of_sensor(&sensor.body, &name)),
                    Err(problem) => found.problems.push(format!("chassis {name}: {problem}")),
                }
            }
        }
    }
}

fn of_list(resource: &Value, list: &List, chassis: &str, found: &mut Readings) {
    for item in resource.get(list.field).and_then(Value::as_array).into_iter().flatten() {
        if found.readings.len() >= MAX_READINGS {
            found.problems.push(format!("more than {MAX_READINGS} readings; the rest was left out"));
            return;
        }
        let value = list.values.iter().find_map(|field| item.get(field).and_then(Value::as_f64));
        let unit = match text(item, "/ReadingUnits") {
            Some("Percent") => "percent",
            _ => list.unit,
        };
        found.readings.push(reading(item, chassis, list.quantity, value, unit));
    }
}

fn of_sensor(item: &Value, chassis: &str) -> Option<Reading> {
    let (quantity, unit) = match text(item, "/ReadingType")? {
        "Temperature" => (Quantity::Temperature, "celsius"),
        "Rotational" => (Quantity::Fan, "rpm"),
        "Percent" if text(item, "/PhysicalContext") == Some("Fan") => (Quantity::Fan, "percent"),
        "Power" => (Quantity::Power, "watts"),
        "Voltage" => (Quantity::Voltage, "volts"),
        _ => return None,
    };
    Some(reading(item, chassis, quantity, item.get("Reading").and_then(Value::as_f64), unit))
}

fn reading(item: &Value, chassis: &str, quantity: Quantity, value: Option<f64>, unit: &str) -> Reading {
    let name = ["/Name", "/FanName", "/MemberId", "/Id"].iter().find_map(|it| text(item, it)).unwrap_or("unnamed");
    let (standing, reason) = standing(item, value);
    // What is not installed measures nothing, whatever the BMC says.
    let value = value.filter(|_| standing != Standing::Absent);
    Reading { chassis: chassis.into(), name: name.into(), quantity, value, unit: unit.into(), standing, reason }
}

/// The BMC's own judgement first, then its limits.
fn standing(item: &Value, value: Option<f64>) -> (Standing, Option<String>) {
    if text(item, "/Status/State") == Some("Absent") {
        return (Standing::Absent, Some("not installed".into()));
    }
    let Some(value) = value else {
        let state = text(item, "/Status/State").map(|state| format!(" (state {state})")).unwrap_or_default();
        return (Standing::Unknown, Some(format!("the BMC gives no reading{state}")));
    };
    let limit = |field: &str| {
        let newer = format!("/Thresholds/{}/Reading", field.replace("Threshold", "").replace("NonCritical", "Caution"));
        item.get(field).or_else(|| item.pointer(&newer)).and_then(Value::as_f64)
    };
    for (suffix, standing) in [("Critical", Standing::Critical), ("NonCritical", Standing::Warning)] {
        if let Some(limit) = limit(&format!("UpperThreshold{suffix}")).filter(|limit| value >= *limit) {
            return (standing, Some(format!("{value} is at or above {limit}")));
        }
        if let Some(limit) = limit(&format!("LowerThreshold{suffix}")).filter(|limit| value <= *limit) {
            return (standing, Some(format!("{value} is at or below {limit}")));
        }
    }
    match text(item, "/Status/Health") {
        Some("Critical") => (Standing::Critical, Some("the BMC says Critical".into())),
        Some("Warning") => (Standing::Warning, Some("the BMC says Warning".into())),
        _ => (Standing::Ok, None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted::{Scripted, answer};

    #[test]
    fn a_missing_reading_is_unknown_and_no_number() {
        let thermal = json!({
            "Temperatures": [
                { "Name": "CPU 1", "ReadingCelsius": 91.5, "UpperThresholdCritical": 90 },
                { "Name": "CPU 2", "ReadingCelsius": null, "Status": { "State": "Disabled" } },
                { "Name": "GPU 9", "ReadingCelsius": 0, "Status": { "State": "Absent" } },
            ],
            "Fans": [{ "FanName": "Fan 1", "Reading": 30, "ReadingUnits": "Percent", "Status": { "Health": "Warning" } }],
        });
        let mut bmc = Scripted::new([
            answer(200, json!({ "Chassis": { "@odata.id": "/redfish/v1/Chassis" } })),
            answer(200, json!({ "Members": [{ "@odata.id": "/redfish/v1/Chassis/1" }] })),
            answer(
                200,
                json!({ "Id": "1", "Thermal": { "@odata.id": "/redfish/v1/Chassis/1/Thermal" },
                "Power": { "@odata.id": "/redfish/v1/Chassis/1/Power" } }),
            ),
            answer(200, thermal),
            answer(500, json!({})),
        ]);
        let found = read(&mut Client::new(&mut bmc)).expect("the BMC answers");
        let seen: Vec<_> =
            found.readings.iter().map(|it| (it.name.as_str(), it.value, it.standing, it.unit.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("CPU 1", Some(91.5), Standing::Critical, "celsius"),
                ("CPU 2", None, Standing::Unknown, "celsius"),
                ("GPU 9", None, Standing::Absent, "celsius"),
                ("Fan 1", Some(30.0), Standing::Warning, "percent"),
            ]
        );
        assert_eq!(found.problems.len(), 1, "the power could not be read: {:?}", found.problems);
    }

    #[test]
    fn newer_bmcs_have_one_list_of_sensors() {
        let sensor = json!({ "Name": "Inlet", "ReadingType": "Temperature", "Reading": 40,
            "Thresholds": { "UpperCaution": { "Reading": 38 } } });
        let reading = of_sensor(&sensor, "1").expect("a temperature");
        assert_eq!((reading.standing, reading.value), (Standing::Warning, Some(40.0)));
        assert_eq!(of_sensor(&json!({ "ReadingType": "Humidity", "Reading": 3 }), "1"), None);
    }
}
